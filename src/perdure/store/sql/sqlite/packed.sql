-- Rows packed into one row: a list is read with one call, since every further call may wait for the interpreter's lock.
-- head is JSON (ids in hex, and the lengths of the payloads), body is the payloads themselves, one after the other.

-- name: create_packed_process
CREATE TEMP VIEW packed_process AS
SELECT *,
    json_array(
        hex(id), kind, key, length(input), status, run, version, token, hex(owner), due_at, reminder, inbox, seen, events,
        awaiting, deaths, alone_deaths, deadline, priority, length(attributes), length(state), length(progress),
        length(result), length(error), hex(parent), code, created_at,
        CASE opened_at WHEN 0 THEN created_at ELSE opened_at END, changed_at, share, cost
    ) AS head,
    length(input) + coalesce(length(state), 0) + coalesce(length(result), 0) + coalesce(length(error), 0) AS bytes,
    input || coalesce(attributes, x'') || coalesce(state, x'') || coalesce(progress, x'')
        || coalesce(result, x'') || coalesce(error, x'') AS body
FROM main.process

-- name: create_packed_event
CREATE TEMP VIEW packed_event AS
SELECT *,
    json_array(
        hex(process), number, turn, type, at, place, name, length(payload), length(digest), message, token, version
    ) AS head,
    coalesce(payload, x'') || coalesce(digest, x'') AS body
FROM main.event

-- name: create_packed_message
CREATE TEMP VIEW packed_message AS
SELECT *,
    json_array(
        hex(process), hex(id), type, name, length(payload), key, length(sender), number, at, consumed_run, consumed_by
    ) AS head,
    payload || coalesce(sender, x'') AS body
FROM main.message
