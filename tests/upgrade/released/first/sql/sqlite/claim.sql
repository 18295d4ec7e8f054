-- Claims. Owned rows are not in the index of due rows: a lapsed lease is found through the owners, who are few.

-- name: look_for_work
-- All that a worker must know to claim or to wait, without the write lock.
-- heads: the earliest due time of each hosted pair and priority, plain and suspect, one seek each.
-- lapsed: rows whose lease is over, one seek per owner; hosted ones only, the longest lapsed first.
WITH RECURSIVE
common (now, most, alone, worker) AS (SELECT ?, ?, ?, ?),
given (n, kind, code) AS (SELECT * FROM (VALUES /* each */ (?, ?, ?) /* end */) WHERE column1 IS NOT -0.5),
priorities (priority) AS (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)),
heads (n, priority, plain, suspect) AS MATERIALIZED (
    SELECT given.n, priorities.priority,
        (SELECT min(due_at) FROM process INDEXED BY process_due
         WHERE kind = given.kind AND code = given.code AND priority = priorities.priority
         AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2),
        (SELECT min(due_at) FROM process INDEXED BY process_suspect
         WHERE kind = given.kind AND code = given.code AND priority = priorities.priority
         AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths >= 2)
    FROM given CROSS JOIN priorities
),
owners (owner) AS (
    SELECT min(owner) FROM process INDEXED BY process_owned WHERE owner IS NOT NULL
    UNION ALL
    SELECT (SELECT min(owner) FROM process INDEXED BY process_owned WHERE owner > owners.owner)
    FROM owners WHERE owners.owner IS NOT NULL
)
SELECT
    (SELECT at FROM clock),
    EXISTS (SELECT 1 FROM worker WHERE id = (SELECT worker FROM common) AND ended_at IS NULL),
    (SELECT json_group_array(json_array(n, priority, plain, suspect)) FROM heads
     WHERE plain IS NOT NULL OR suspect IS NOT NULL),
    (SELECT json_group_array(json_array(hex(id), bytes)) FROM (
        SELECT process.id, length(input) + coalesce(length(state), 0) + coalesce(length(result), 0) + coalesce(length(error), 0) AS bytes
        FROM owners
        CROSS JOIN process INDEXED BY process_owned ON process.owner = owners.owner AND process.due_at <= (SELECT now FROM common)
        WHERE owners.owner IS NOT NULL AND (process.deaths >= 2) = (SELECT alone FROM common)
        AND (process.kind, process.code) IN (SELECT given.kind, given.code FROM given)
        AND NOT EXISTS (SELECT 1 FROM queue WHERE name = ' recovery' AND blocked_at IS NOT NULL)
        ORDER BY process.due_at, process.id LIMIT (SELECT most FROM common)
    ))

-- name: take_due
SELECT json_group_array(json_array(due_at, hex(id), bytes)) FROM (
    SELECT due_at, id, length(input) + coalesce(length(state), 0) + coalesce(length(result), 0) + coalesce(length(error), 0) AS bytes
    FROM process INDEXED BY process_due
    WHERE kind = :kind AND code = :code AND priority = :priority AND due_at <= :now
    AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2
    ORDER BY due_at, id LIMIT :most
)

-- name: take_suspects
SELECT json_group_array(json_array(due_at, hex(id), bytes)) FROM (
    SELECT due_at, id, length(input) + coalesce(length(state), 0) + coalesce(length(result), 0) + coalesce(length(error), 0) AS bytes
    FROM process INDEXED BY process_suspect
    WHERE kind = :kind AND code = :code AND priority = :priority AND due_at <= :now
    AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths >= 2
    ORDER BY due_at, id LIMIT :most
)

-- name: read_processes
WITH given (n, id) AS (VALUES /* each */ (?, ?) /* end */)
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT p.head, p.body FROM given CROSS JOIN packed_process AS p ON p.id = given.id ORDER BY given.n
)

-- name: own_processes
UPDATE process SET
    owner = ?, due_at = ?, opened_at = coalesce(opened_at, ?), changed_at = ?, token = token + 1, reminder = 0
WHERE id IN (VALUES /* each */ (?) /* end */)

-- name: read_histories
WITH given (process, run) AS (VALUES /* each */ (?, ?) /* end */)
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT e.head, e.body FROM given CROSS JOIN packed_event AS e ON e.process = given.process AND e.run = given.run
    ORDER BY e.process, e.number
)

-- name: read_unheard
WITH given (process) AS (VALUES /* each */ (?) /* end */)
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT m.head, m.body FROM given CROSS JOIN packed_message AS m ON m.process = given.process
    WHERE m.consumed_by IS NULL ORDER BY m.process, m.number
)

-- name: read_messages_by_number
WITH given (process, number) AS (VALUES /* each */ (?, ?) /* end */)
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT m.head, m.body FROM given
    CROSS JOIN packed_message AS m ON m.process = given.process AND m.number = given.number
    ORDER BY m.process, m.number
)
