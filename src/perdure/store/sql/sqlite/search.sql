-- name: search_processes
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT head, body FROM packed_process WHERE /* conditions */ ORDER BY id DESC LIMIT ?
)

-- name: search_noticed
-- The same where an index finds the rows and ids must be sorted: nothing is packed before it is known which rows are answered.
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT p.head, p.body FROM (SELECT id AS found FROM process WHERE /* conditions */ ORDER BY id DESC LIMIT ?)
    CROSS JOIN packed_process AS p ON p.id = found ORDER BY found DESC
)

-- name: search_newest
-- The same among so many of the newest rows only.
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT head, body FROM packed_process
    WHERE id >= coalesce((SELECT id FROM main.process WHERE id < ? ORDER BY id DESC LIMIT 1 OFFSET ?), x'')
    AND /* conditions */ ORDER BY id DESC LIMIT ?
)

-- name: count_processes
SELECT json_group_array(json_array(kind, status, number)) FROM (
    SELECT kind, status, count(*) AS number FROM process WHERE /* conditions */ GROUP BY kind, status
)

-- name: read_history
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT head, body FROM packed_event WHERE process = :process AND run = :run AND number > :start ORDER BY number LIMIT :most
)

-- name: read_history_backward
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT head, body FROM packed_event WHERE process = :process AND run = :run AND number < :start ORDER BY number DESC LIMIT :most
)

-- name: read_some_history
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT head, body FROM packed_event WHERE process = :process AND run = :run AND number > :start
    AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
    AND (:names IS NULL OR name IN (SELECT value FROM json_each(:names))) ORDER BY number LIMIT :most
)

-- name: read_some_history_backward
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT head, body FROM packed_event WHERE process = :process AND run = :run AND number < :start
    AND (:types IS NULL OR type IN (SELECT value FROM json_each(:types)))
    AND (:names IS NULL OR name IN (SELECT value FROM json_each(:names))) ORDER BY number DESC LIMIT :most
)

-- name: read_some_histories
-- Histories up to so many bytes: those before whose process less than that comes.
WITH common (most, each_bytes) AS (SELECT ?, ?),
given (process, run, start, last) AS (VALUES /* each */ (?, ?, ?, ?) /* end */),
sized AS MATERIALIZED (
    SELECT process, run, start, last, bytes, sum(bytes) OVER (ORDER BY process) AS total FROM (
        SELECT given.*, (
            SELECT coalesce(sum(coalesce(length(e.payload), 0) + (SELECT each_bytes FROM common)), 0) FROM event AS e
            WHERE e.process = given.process AND e.run = given.run AND e.number BETWEEN given.start AND given.last
        ) AS bytes FROM given
    )
)
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT e.head, e.body FROM sized
    CROSS JOIN packed_event AS e ON e.process = sized.process AND e.run = sized.run
        AND e.number BETWEEN sized.start AND sized.last
    WHERE sized.total - sized.bytes < (SELECT most FROM common) ORDER BY e.process, e.number
)

-- name: read_published
-- Published values of one name: a seek in their own index, then one for each.
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT e.head, e.body FROM (
        SELECT number FROM event INDEXED BY event_published
        WHERE type >= 36 AND type <= 39 AND type <> 37 AND type = 36 AND name = :name
        AND process = :process AND run = :run AND number > :start
        ORDER BY number LIMIT :most
    ) AS found
    CROSS JOIN packed_event AS e ON e.process = :process AND e.run = :run AND e.number = found.number
    ORDER BY found.number
)

-- name: read_published_backward
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT e.head, e.body FROM (
        SELECT number FROM event INDEXED BY event_published
        WHERE type >= 36 AND type <= 39 AND type <> 37 AND type = 36 AND name = :name
        AND process = :process AND run = :run AND number < :start
        ORDER BY number DESC LIMIT :most
    ) AS found
    CROSS JOIN packed_event AS e ON e.process = :process AND e.run = :run AND e.number = found.number
    ORDER BY found.number DESC
)

-- name: read_answers
-- Answers to calls, by their names: of each the first one, in the given run or a later one; two seeks for each.
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT e.head, e.body FROM json_each(:names) AS wanted
    CROSS JOIN packed_event AS e ON e.process = :process AND (e.run, e.number) = (
        SELECT run, number FROM event INDEXED BY event_published
        WHERE type >= 36 AND type <= 39 AND type <> 37 AND type >= 38 AND name = wanted.value
        AND process = :process AND run >= :run
        ORDER BY run, number LIMIT 1
    )
    ORDER BY wanted.key LIMIT :most
)

-- name: read_messages_above
WITH given (process, number) AS (VALUES /* each */ (?, ?) /* end */)
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT m.head, m.body FROM given
    CROSS JOIN packed_message AS m ON m.process = given.process AND m.number > given.number
    ORDER BY m.process, m.number
)
