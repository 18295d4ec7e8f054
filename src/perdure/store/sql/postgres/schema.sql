-- How the schema itself is made and measured. Statements outside a transaction of ours say the schema of every name.

-- name: fixed_path
-- No name in our SQL may find what others have put into the login's own search path. In a transaction, so that it holds
-- behind a pooler too. Temporary objects come last, and not first, only if they are named.
SET LOCAL search_path = pg_catalog, pg_temp

-- name: types
-- Asked for its types alone, which the driver looks up by queries of its own, once for each connection.
SELECT NULL::perdure.start_in[], NULL::perdure.start_rare[], NULL::perdure.commit_in[], NULL::perdure.commit_rare[],
       NULL::perdure.event_in[], NULL::perdure.consumed_in[], NULL::perdure.letter_in[], NULL::perdure.queue_in[], NULL::perdure.clock_in[],
       NULL::perdure.circuit_in[], NULL::perdure.leader_in[], NULL::perdure.note_in[], NULL::perdure.event_stream_in[],
       NULL::perdure.kept_finding_in[], NULL::perdure.audit_in[],
       NULL::perdure.commit_in, NULL::perdure.commit_rare, NULL::pg_catalog.uuid[], NULL::pg_catalog.text[],
       NULL::pg_catalog.bytea[], NULL::int[], NULL::bigint[], NULL::boolean[]

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS perdure;
CREATE TABLE IF NOT EXISTS perdure.migration (
    number     int PRIMARY KEY,
    name       pg_catalog.text NOT NULL,
    applied_at timestamp with time zone NOT NULL DEFAULT pg_catalog.clock_timestamp()
)

-- name: limit_migration
-- A migrating OS process that hangs between two statements loses the lock after this time: others migrate then.
SET LOCAL idle_in_transaction_session_timeout = '60s'

-- name: limit_lock
-- For the advisory lock alone, which any login that may connect can take and keep.
SET LOCAL lock_timeout = '60s'

-- name: lock_new_schema
-- While there is no table of ours to lock. Transaction-level, so that it is freed with the transaction, behind a pooler too.
SELECT pg_catalog.pg_advisory_xact_lock($1)

-- name: unlimit_lock
SET LOCAL lock_timeout = 0

-- name: lock_schema
-- A table, which strangers cannot lock: a migration waits only for other migrations.
LOCK TABLE perdure.migration IN SHARE ROW EXCLUSIVE MODE

-- name: limit_waiting
-- A step that waits for a table makes all later sessions wait behind it: so it gives up, and is tried again.
SET LOCAL lock_timeout = '1s'

-- name: there_is_a_schema
SELECT pg_catalog.to_regclass($1) IS NOT NULL AS there

-- name: last_migration
SELECT coalesce(pg_catalog.max(m.number), 0) AS number FROM perdure.migration m

-- name: record_migration
INSERT INTO perdure.migration (number, name) VALUES ($1, $2)

-- name: oldest_reader
SELECT r.oldest FROM perdure.schema_reader r
