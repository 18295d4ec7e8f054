-- name: search_processes
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT head, body FROM packed_process WHERE /* conditions */ ORDER BY id DESC LIMIT ?
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

-- name: read_messages_above
WITH given (process, number) AS (VALUES /* each */ (?, ?) /* end */)
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT m.head, m.body FROM given
    CROSS JOIN packed_message AS m ON m.process = given.process AND m.number > given.number
    ORDER BY m.process, m.number
)
