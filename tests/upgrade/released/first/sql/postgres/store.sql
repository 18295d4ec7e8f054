-- The doors of the store, as the client calls them. What they do stands in functions/, one file each.

-- name: now
SELECT perdure.micros(perdure.now()) AS now

-- name: lineage
SELECT (SELECT c.system_identifier FROM pg_control_system() c) AS cluster,
       ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int AS timeline,
       (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint AS written

-- name: marks
SELECT p.id, p.token, p.version, p.owner FROM perdure.process p WHERE p.id = ANY ($1::uuid[])

-- name: start
SELECT * FROM perdure.start($1, $2, $3, $4, $5, $6)

-- name: start_telling
SELECT * FROM perdure.start_telling($1, $2, $3, $4, $5, $6, $7)

-- name: commit
SELECT * FROM perdure.commit($1, $2, $3, $4, $5)

-- name: commit_alone
SELECT * FROM perdure.commit_alone($1, $2, $3, $4, $5)

-- name: commit_outward_alone
SELECT * FROM perdure.commit_outward_alone($1, $2, $3, $4, $5, $6, $7, $8)

-- name: commit_outward
SELECT * FROM perdure.commit_outward($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: send
SELECT * FROM perdure.send($1, $2, $3, $4, $5, $6, $7)

-- name: send_alone
SELECT * FROM perdure.send_alone($1, $2, $3, $4, $5, $6, $7)

-- name: claim
SELECT s.now, s.next_due_at, s.alive, s.suspects, s.was_owned_by, (s.taken).*
FROM perdure.claim($1, $2, $3, $4, $5, $6, $7) AS s

-- name: claim_among
SELECT s.now, s.left_due_at, s.alive, false AS suspects, NULL::uuid AS was_owned_by, (s.taken).*
FROM perdure.claim_among($1, $2, $3, $4, $5, $6) AS s

-- name: claim_queued
SELECT s.now, s.next_due_at, s.alive, s.suspects, s.was_owned_by, (s.taken).*
FROM perdure.claim_queued($1, $2, $3, $4, $5, $6, $7) AS s

-- name: seize
SELECT s.now, NULL::bigint AS next_due_at, true AS alive, false AS suspects, s.was_owned_by, (s.taken).*
FROM perdure.seize($1, $2, $3) AS s

-- name: claimed_events
SELECT * FROM perdure.claimed_events($1, $2, $3)

-- name: claimed_messages
SELECT * FROM perdure.claimed_messages($1, $2)

-- name: beat
SELECT * FROM perdure.beat($1, $2, $3, $4, $5, $6)

-- name: enlist
SELECT * FROM perdure.enlist($1, $2, $3, $4, $5)

-- name: retire
SELECT perdure.retire($1, $2, $3) AS ended

-- name: workers
SELECT * FROM perdure.workers($1)

-- name: hold_lock
SELECT pg_try_advisory_lock($1) AS held

-- name: free_lock
SELECT pg_advisory_unlock($1) AS freed

-- name: overdue
SELECT * FROM perdure.overdue($1, $2, $3)

-- name: search
SELECT * FROM perdure.search($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)

-- name: search_by_id
SELECT * FROM perdure.search_by_id($1, $2, $3)

-- name: count
SELECT * FROM perdure.count($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: history
SELECT * FROM perdure.history($1, $2, $3, $4, $5, $6, $7)

-- name: messages
SELECT * FROM perdure.later_messages($1, $2)

-- name: queues
SELECT * FROM perdure.queues($1)

-- name: loads
SELECT * FROM perdure.loads($1)

-- name: backlogs
SELECT * FROM perdure.backlogs($1)

-- name: prune
SELECT * FROM perdure.prune($1, $2, $3)
