-- Queues with limits: their rows, and what a claim must know of their tasks.

-- name: read_queues
SELECT json_group_array(json_array(
    name, version, concurrency, rate, per, share_concurrency, blocked_at, blocked_by, blocked_why, changed_at, who, why,
    origin, next_at, turn
)) FROM (SELECT * FROM queue ORDER BY name)

-- name: write_queue
-- What claims keep in the row (next_at and turn) stays, but no debt is longer than one period of the rate.
INSERT INTO queue (
    name, version, concurrency, rate, per, share_concurrency, blocked_at, blocked_by, blocked_why, changed_at, who, why,
    origin, next_at, turn
)
SELECT
    :name, :version, :concurrency, :rate, :per, :share_concurrency, :blocked_at, :blocked_by, :blocked_why, :changed_at,
    :who, :why, :origin, 0, ''
WHERE :version = 1 OR EXISTS (SELECT 1 FROM queue WHERE name = :name)
ON CONFLICT (name) DO UPDATE SET
    version = excluded.version, concurrency = excluded.concurrency, rate = excluded.rate, per = excluded.per,
    share_concurrency = excluded.share_concurrency, blocked_at = excluded.blocked_at, blocked_by = excluded.blocked_by,
    blocked_why = excluded.blocked_why, changed_at = excluded.changed_at, who = excluded.who, why = excluded.why,
    origin = excluded.origin, next_at = min(queue.next_at, excluded.changed_at + excluded.per)
WHERE excluded.version = queue.version + 1
