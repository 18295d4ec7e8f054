-- What a guest asks in a transaction of the caller's own. Ids travel as text, and every value has its type here, so that
-- no driver needs to be told anything.

-- name: enqueue
SELECT e.verdict, CAST(e.holder AS text), e.now
FROM perdure.enqueue(
    CAST(CAST($1 AS text) AS uuid), CAST($2 AS text), CAST($3 AS text), CAST($4 AS bytea), CAST($5 AS text),
    CAST($6 AS bigint), CAST($7 AS text)) AS e

-- name: tell
SELECT e.verdict, e.number, e.now
FROM perdure.tell(
    CAST(CAST($1 AS text) AS uuid), CAST(CAST($2 AS text) AS uuid), CAST($3 AS int), CAST($4 AS text),
    CAST($5 AS bytea), CAST($6 AS text), CAST($7 AS bytea)) AS e
