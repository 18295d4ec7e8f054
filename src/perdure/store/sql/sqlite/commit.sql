-- name: look_at_fences
-- Which commits of a batch do not simply fit: their rows are gone, have another fence, or have had messages.
-- Read under the write lock, which is every row's lock (rule 1).
WITH given (n, id, token, version) AS (VALUES /* each */ (?, ?, ?, ?) /* end */)
SELECT json_group_array(json_array(given.n, process.token, process.version, process.inbox))
FROM given LEFT JOIN process ON process.id = given.id
WHERE given.n IS NOT -0.5
AND (process.token IS NOT given.token OR process.version IS NOT given.version OR process.inbox > 0)

-- name: read_fence
SELECT token, version FROM process WHERE id = :id

-- name: read_event
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB)
FROM packed_event WHERE process = :process AND run = :run AND number = :number

-- name: update_processes
-- An insert that always meets its row, because the fences were looked at under the same lock. Kind and input stand for
-- columns that are never changed here, like key, inbox, parent and created_at.
INSERT INTO process (
    id, status, run, version, token, owner, due_at, reminder, seen, events, awaiting, deaths, alone_deaths, deadline,
    priority, attributes, state, progress, result, error, code, opened_at, changed_at, inbox, created_at, kind, input
)
SELECT
    column1, column2, column3, column4, column5, nullif(column6, -0.5), nullif(column7, -0.5), column8, column9,
    column10, nullif(column11, -0.5), column12, column13, nullif(column14, -0.5), column15,
    nullif(column16, -0.5), nullif(column17, -0.5), nullif(column18, -0.5), nullif(column19, -0.5), nullif(column20, -0.5),
    column21, nullif(column22, -0.5), column23, column24, 0, '', x''
FROM (VALUES
    /* each */ (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) /* end */
)
WHERE column1 IS NOT -0.5
ON CONFLICT (id) DO UPDATE SET
    status = excluded.status, run = excluded.run, version = excluded.version, token = excluded.token,
    owner = excluded.owner, due_at = excluded.due_at, reminder = excluded.reminder, seen = excluded.seen,
    events = excluded.events, awaiting = excluded.awaiting, deaths = excluded.deaths,
    alone_deaths = excluded.alone_deaths, deadline = excluded.deadline, priority = excluded.priority,
    attributes = excluded.attributes, state = excluded.state, progress = excluded.progress, result = excluded.result,
    error = excluded.error, code = excluded.code, opened_at = excluded.opened_at, changed_at = excluded.changed_at

-- name: offer_messages
-- A new run is offered messages again, from a number on.
WITH given (process, number) AS (VALUES /* each */ (?, ?) /* end */)
UPDATE message SET consumed_run = NULL, consumed_by = NULL
FROM given WHERE message.process = given.process AND message.number >= given.number

-- name: consume_messages
WITH given (process, number, run, event) AS (VALUES /* each */ (?, ?, ?, ?) /* end */)
UPDATE message SET consumed_run = given.run, consumed_by = given.event
FROM given WHERE message.process = given.process AND message.number = given.number AND message.consumed_by IS NULL
