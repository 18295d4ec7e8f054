-- The doors of the store, as the client calls them. What they do stands in functions/, one file each.

-- name: now
SELECT perdure.micros(perdure.now()) AS now

-- name: start
SELECT * FROM perdure.start($1, $2, $3, $4, $5, $6)

-- name: commit
SELECT * FROM perdure.commit($1, $2, $3, $4)

-- name: commit_alone
SELECT * FROM perdure.commit_alone($1, $2, $3)

-- name: send
SELECT * FROM perdure.send($1, $2, $3, $4, $5, $6, $7)

-- name: claim
SELECT * FROM perdure.claim($1, $2, $3, $4, $5, $6, $7)

-- name: claimed_events
-- Events later than the claimed row are of another owner's commit, which came in between: left out (rule 3).
SELECT e.* FROM unnest($1::uuid[], $2::int[], $3::int[]) AS u(process, run, events)
JOIN perdure.event_out e ON e.process = u.process AND e.run = u.run AND e.number <= u.events
ORDER BY e.process, e.number

-- name: claimed_messages
-- What has not been consumed, and what the events of the run refer to.
SELECT m.* FROM unnest($1::uuid[], $2::int[]) AS u(process, run)
JOIN perdure.message_out m ON m.process = u.process
WHERE m.consumed_by IS NULL OR m.number IN (
    SELECT e.message FROM perdure.event e WHERE e.process = u.process AND e.run = u.run AND e.message IS NOT NULL
)
ORDER BY m.process, m.number

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
SELECT * FROM perdure.search($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: count
SELECT * FROM perdure.count($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: history
SELECT * FROM perdure.event_out e WHERE e.process = $1 AND e.run = $2 AND e.number > $3
ORDER BY e.number LIMIT $4

-- name: history_backward
SELECT * FROM perdure.event_out e WHERE e.process = $1 AND e.run = $2 AND (e.number < $3 OR $3 = 0)
ORDER BY e.number DESC LIMIT $4

-- name: messages
SELECT m.* FROM unnest($1::uuid[], $2::int[]) AS u(process, number)
JOIN perdure.message_out m ON m.process = u.process AND m.number > u.number
ORDER BY m.process, m.number

-- name: prune
SELECT * FROM perdure.prune($1, $2, $3)
