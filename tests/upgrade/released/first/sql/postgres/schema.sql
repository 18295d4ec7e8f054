-- How the schema itself is made and measured.

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS perdure;
CREATE TABLE IF NOT EXISTS perdure.migration (
    number     int PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)

-- name: limit_migration
-- A migrating OS process that hangs between two statements loses the lock after this time: others migrate then.
SET LOCAL idle_in_transaction_session_timeout = '60s'

-- name: lock_schema
-- Transaction-level, so that it is freed with the transaction, behind a pooler too.
SELECT pg_advisory_xact_lock($1)

-- name: there_is_a_schema
SELECT to_regclass($1) IS NOT NULL AS there

-- name: last_migration
SELECT coalesce(max(m.number), 0) AS number FROM perdure.migration m

-- name: record_migration
INSERT INTO perdure.migration (number, name) VALUES ($1, $2)
