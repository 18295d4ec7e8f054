-- name: look_at_fences
-- Which commits of a batch do not simply fit: their rows are gone, have another fence, or have had messages.
-- Read under the write lock, which is every row's lock (rule 1).
WITH given (n, id, token, version) AS (VALUES /* each */ (?, ?, ?, ?) /* end */)
SELECT json_group_array(json_array(given.n, process.token, process.version, process.inbox))
FROM given LEFT JOIN process ON process.id = given.id
WHERE given.n IS NOT -0.5
AND (process.token IS NOT given.token OR process.version IS NOT given.version OR process.inbox <> 0)

-- name: look_at_keys
WITH given (n, process, key) AS (VALUES /* each */ (?, ?, ?) /* end */)
SELECT json_group_array(given.n)
FROM given JOIN message ON message.process = given.process AND message.key = given.key
WHERE given.n IS NOT -0.5 AND message.key IS NOT NULL

-- name: read_fence
SELECT token, version FROM process WHERE id = :id

-- name: read_event
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB)
FROM packed_event WHERE process = :process AND run = :run AND number = :number

-- name: update_processes
-- All but kind, key, input, parent and created_at, which commits never change, and the inbox, unless the commit brings a
-- letter that it has seen; the end of a process gives back its place among the processes of its kind. The fence (token, version) and the
-- inbox that is expected are compared on the row under the lock (rule 1): the count of changed rows tells.
UPDATE process SET
    status = column2, run = column3, version = column4, token = column5, owner = nullif(column6, -0.5),
    due_at = nullif(column7, -0.5), reminder = column8, inbox = max(inbox, column9), seen = column9, events = column10,
    awaiting = nullif(column11, -0.5), deaths = column12, alone_deaths = column13,
    deadline = nullif(column14, -0.5), priority = column15,
    attributes = CASE column16 WHEN -0.5 THEN attributes ELSE nullif(column16, x'') END,
    state = nullif(column17, -0.5), progress = CASE column18 WHEN x'' THEN progress ELSE nullif(column18, -0.5) END,
    result = nullif(column19, -0.5),
    error = nullif(column20, -0.5), code = column21,
    -- a reminder changes nothing but the next one's time
    changed_at = iif(
        column8 AND reminder AND events = column10 AND status = column2 AND (status <> 1 OR seen = inbox),
        changed_at, column23
    ),
    opened_at = CASE column22 WHEN created_at THEN 0 WHEN -0.5 THEN NULL ELSE column22 END,
    share = iif(column7 = -0.5, nullif(share, ' place'), share)
FROM /* rows */ (VALUES
    /* each */ (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) /* end */
)
WHERE id = column1 AND token = column24 AND version = column25 AND inbox = column26

-- name: offer_messages
-- A new run is offered messages again, from a number on; and the letters that the run before it has received, which may
-- have lower numbers. Those that it keeps are consumed again by their events.
WITH given (process, number, before) AS (VALUES /* each */ (?, ?, ?) /* end */)
UPDATE message SET
    consumed_run = NULL, consumed_by = NULL, waits = CASE WHEN message.number < given.number THEN 1 END
FROM given
WHERE message.process = given.process
AND (message.number >= given.number OR (message.consumed_run = given.before AND (message.type = 1 OR message.type = 7)))

-- name: keep_messages
WITH given (process, run) AS (VALUES /* each */ (?, ?) /* end */)
UPDATE message SET consumed_run = given.run, consumed_by = event.number, waits = NULL
FROM given CROSS JOIN event ON event.process = given.process AND event.run = given.run AND event.message IS NOT NULL
WHERE message.process = given.process AND message.number = event.message

-- name: leave_messages
-- Letters that were heard and not received stay in the inbox, marked; those that were received are put back.
WITH given (process, number) AS (VALUES /* each */ (?, ?) /* end */)
UPDATE message SET consumed_run = NULL, consumed_by = NULL, waits = 1
FROM given WHERE message.process = given.process AND message.number = given.number

-- name: consume_messages
WITH given (process, number, run, event) AS (VALUES /* each */ (?, ?, ?, ?) /* end */)
UPDATE message SET consumed_run = given.run, consumed_by = given.event, waits = NULL
FROM given WHERE message.process = given.process AND message.number = given.number AND message.consumed_by IS NULL

-- name: bring_messages
-- Letters that were never sent, with the commits that have received them; nothing of them waits.
INSERT INTO message (process, number, id, type, name, payload, key, sender, at, consumed_run, consumed_by)
SELECT
    column1, column2, column3, column4, column5, column6, nullif(column7, -0.5), nullif(column8, -0.5), column9, column10,
    column11
FROM /* rows */ (VALUES /* each */ (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) /* end */)
WHERE column1 IS NOT -0.5
