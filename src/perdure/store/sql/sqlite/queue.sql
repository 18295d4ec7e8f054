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

-- name: keep_queue
-- What a claim keeps in the row; the version counts only what people set.
UPDATE queue SET next_at = :next_at, turn = :turn WHERE name = :name

-- name: running_of_queue
SELECT json_group_array(json_array(share, cost, number)) FROM (
    SELECT share, coalesce(cost, 1) AS cost, count(*) AS number FROM process INDEXED BY process_running
    WHERE kind = :kind AND kind < 'A' AND kind >= '@' AND owner IS NOT NULL GROUP BY share, cost
)

-- name: lapsed_of_queue
-- Tasks of a queue whose lease is over, one seek per owner.
WITH RECURSIVE owners (owner) AS (
    SELECT min(owner) FROM process INDEXED BY process_owned WHERE owner IS NOT NULL
    UNION ALL
    SELECT (SELECT min(owner) FROM process INDEXED BY process_owned WHERE owner > owners.owner)
    FROM owners WHERE owners.owner IS NOT NULL
)
SELECT json_group_array(json_array(due_at, hex(id), share, cost, bytes, alone_deaths)) FROM (
    SELECT process.due_at, process.id, process.share, coalesce(process.cost, 1) AS cost, process.alone_deaths,
        length(input) + coalesce(length(state), 0) + coalesce(length(result), 0) + coalesce(length(error), 0) AS bytes
    FROM owners CROSS JOIN process INDEXED BY process_owned ON process.owner = owners.owner AND process.due_at <= :now
    WHERE owners.owner IS NOT NULL AND process.kind = :kind AND (process.deaths >= 2) = :alone
    AND process.code IN (SELECT value FROM json_each(:codes))
    AND NOT EXISTS (SELECT 1 FROM queue WHERE name = ' recovery' AND (blocked_at IS NOT NULL OR rate IS NOT NULL))
    ORDER BY process.due_at, process.id LIMIT :most
)

-- name: heads_of_queue
-- The earliest due time of each code and priority, plain and suspect, and that of what is due later.
WITH priorities (priority) AS (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9))
SELECT json_group_array(json_array(code, priority, plain, suspect, later)) FROM (
    SELECT codes.value AS code, priorities.priority,
        (SELECT min(due_at) FROM process INDEXED BY process_due
         WHERE kind = :kind AND code = codes.value AND priority = priorities.priority
         AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2) AS plain,
        (SELECT min(due_at) FROM process INDEXED BY process_suspect
         WHERE kind = :kind AND code = codes.value AND priority = priorities.priority
         AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths >= 2) AS suspect,
        (SELECT min(due_at) FROM process INDEXED BY process_due
         WHERE kind = :kind AND code = codes.value AND priority = priorities.priority AND due_at > :now
         AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2) AS later
    FROM json_each(:codes) AS codes CROSS JOIN priorities
) WHERE plain IS NOT NULL OR suspect IS NOT NULL

-- name: shares_of_queue
-- The shares that wait in one code and priority, between two of them: one seek each, at most so many.
WITH RECURSIVE shares (share, n) AS (
    SELECT min(share), 1 FROM process INDEXED BY process_share
    WHERE kind = :kind AND code = :code AND priority = :priority AND share > :after AND share <= :last
    AND kind < 'A' AND kind >= '@' AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2
    UNION ALL
    SELECT (
        SELECT min(share) FROM process INDEXED BY process_share
        WHERE kind = :kind AND code = :code AND priority = :priority AND share > shares.share AND share <= :last
        AND kind < 'A' AND kind >= '@' AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2
    ), n + 1
    FROM shares WHERE shares.share IS NOT NULL AND n < :most
)
SELECT json_group_array(share) FROM shares WHERE share IS NOT NULL

-- name: tasks_of_share
-- The first due tasks of one share (which may be null) in one code and priority.
SELECT json_group_array(json_array(due_at, hex(id), share, cost, bytes, 0)) FROM (
    SELECT due_at, id, share, coalesce(cost, 1) AS cost,
        length(input) + coalesce(length(state), 0) + coalesce(length(result), 0) + coalesce(length(error), 0) AS bytes
    FROM process INDEXED BY process_share
    WHERE kind = :kind AND code = :code AND priority = :priority AND share IS :share AND due_at <= :now
    AND kind < 'A' AND kind >= '@' AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2
    ORDER BY due_at, id LIMIT :most
)

-- name: suspects_of_queue
SELECT json_group_array(json_array(due_at, hex(id), share, cost, bytes, alone_deaths)) FROM (
    SELECT due_at, id, share, coalesce(cost, 1) AS cost, alone_deaths,
        length(input) + coalesce(length(state), 0) + coalesce(length(result), 0) + coalesce(length(error), 0) AS bytes
    FROM process INDEXED BY process_suspect
    WHERE kind = :kind AND code = :code AND priority = :priority AND due_at <= :now
    AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths >= 2
    ORDER BY due_at, id LIMIT :most
)

-- name: suspects_in_queue
-- Whether suspects are due.
SELECT EXISTS (
    SELECT 1 FROM process INDEXED BY process_suspect
    WHERE kind = :kind AND code IN (SELECT value FROM json_each(:codes)) AND due_at <= :now
    AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths >= 2
)

-- name: read_loads
-- What workers hold of each queue; and of each kind with limits, under the name of its row, what has a place.
SELECT json_group_array(json_array(name, share, cost, tasks)) FROM (
    SELECT substr(kind, 2) AS name, share, coalesce(cost, 1) AS cost, count(*) AS tasks
    FROM process INDEXED BY process_running
    WHERE kind < 'A' AND kind >= '@' AND owner IS NOT NULL GROUP BY kind, share, coalesce(cost, 1)
    UNION ALL
    SELECT name, NULL, 1, tasks FROM (
        SELECT name, (
            SELECT count(*) FROM process INDEXED BY process_place
            WHERE kind = substr(queue.name, 7) AND share = ' place' AND due_at IS NOT NULL
        ) AS tasks FROM queue WHERE name > ' kind ' AND name < ' kind!'
    ) WHERE tasks > 0
    ORDER BY 1, 2, 3
)

-- name: read_queuedepths
-- What waits in each queue, counted up to 100,000 for each label of its tasks: how many tasks no worker owns, how many of
-- them are not due yet, and the earliest time at which one of them was or will be due. The same for what is due and waits
-- for a place among the processes of its kind, under the name of the kind's row.
SELECT json_group_array(json_array(name, waiting, delayed, due_at)) FROM (
    SELECT name, sum(counted ->> 0) AS waiting, sum(counted ->> 1) AS delayed, min(counted ->> 2) AS due_at FROM (
        SELECT substr(kind, 2) AS name, (
            SELECT json_array(count(*), coalesce(sum(due_at > :now), 0), min(due_at)) FROM (
                SELECT due_at FROM process INDEXED BY process_due WHERE kind = due_pair.kind AND code = due_pair.code
                AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2 LIMIT 100000
            )
        ) AS counted FROM due_pair WHERE kind < 'A' AND kind >= '@'
        UNION ALL
        SELECT queue.name, (
            SELECT json_array(count(*), 0, min(due_at)) FROM (
                SELECT due_at FROM process INDEXED BY process_due WHERE kind = substr(queue.name, 7) AND due_at <= :now
                AND share IS NOT ' place' AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2 LIMIT 100000
            )
        ) FROM queue WHERE name > ' kind ' AND name < ' kind!'
    ) GROUP BY name ORDER BY name
)
