-- Statements on a step's own connection, around its transaction. Ids travel as text: that connection is the step's, and
-- nothing is set on it that the step might not expect, not even a search path: every name says its schema.

-- name: result_is_known
-- Asked before the transaction begins. A worker that freezes in it would hold its locks for ever: after that much silence
-- the server ends the session. Behind a pooler the setting must not stay: other clients use the session too.
SELECT perdure.result_known(
    CAST(CAST($1 AS pg_catalog.text) AS pg_catalog.uuid), CAST(CAST($2 AS pg_catalog.text) AS pg_catalog.uuid)
), pg_catalog.set_config('idle_in_transaction_session_timeout', CAST($3 AS pg_catalog.text), CAST($4 AS boolean))

-- name: keep_result
SELECT k.verdict, k.number, k.at
FROM perdure.keep_result(
    CAST(CAST($1 AS pg_catalog.text) AS pg_catalog.uuid), CAST(CAST($2 AS pg_catalog.text) AS pg_catalog.uuid),
    CAST(CAST($3 AS pg_catalog.text) AS pg_catalog.uuid), CAST($4 AS int), CAST($5 AS pg_catalog.text),
    CAST($6 AS pg_catalog.bytea), CAST($7 AS pg_catalog.bytea)) AS k

-- name: lock_for_result
-- A transaction with an unknown end holds this lock, or has ended.
SELECT FROM perdure.process p
WHERE p.id OPERATOR(pg_catalog.=) CAST(CAST($1 AS pg_catalog.text) AS pg_catalog.uuid) FOR NO KEY UPDATE

-- name: reset_session
-- What asyncpg does when a step gives its connection back, by names that say their schema: the path is the login's own.
SELECT pg_catalog.pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL
