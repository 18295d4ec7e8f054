-- Statements in a transaction of the caller's own. Ids travel as text, and every value has its type here, so that no
-- driver needs settings. Every type says its schema, so that the connection's search path does not matter.

-- name: enqueue
SELECT e.verdict, CAST(e.holder AS pg_catalog.text), e.now
FROM perdure.enqueue_with_priority(
    CAST(CAST($1 AS pg_catalog.text) AS pg_catalog.uuid), CAST($2 AS pg_catalog.text), CAST($3 AS pg_catalog.text),
    CAST($4 AS pg_catalog.bytea), CAST($5 AS pg_catalog.text), CAST($6 AS bigint), CAST($7 AS pg_catalog.text),
    CAST($8 AS int)) AS e

-- name: tell
SELECT e.verdict, e.number, e.now
FROM perdure.tell_within(
    CAST(CAST($1 AS pg_catalog.text) AS pg_catalog.uuid), CAST(CAST($2 AS pg_catalog.text) AS pg_catalog.uuid),
    CAST($3 AS int), CAST($4 AS pg_catalog.text), CAST($5 AS pg_catalog.bytea), CAST($6 AS pg_catalog.text),
    CAST($7 AS pg_catalog.bytea), CAST($8 AS int), CAST($9 AS bigint)) AS e

-- name: place
-- Identifies this database and this schema: no two of them were made in the same microsecond.
SELECT CAST(d.oid AS pg_catalog.text) OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||)
       CAST(pg_catalog.date_part('epoch', m.applied_at) AS pg_catalog.text)
FROM perdure.migration m, pg_catalog.pg_database d
WHERE m.number OPERATOR(pg_catalog.=) 1 AND d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
