-- name: look_at_targets
-- The rows that messages go to, and which of the messages they have already, by id or by the sender's key.
WITH given AS (
    SELECT column1 AS n, column2 AS process, column3 AS id, nullif(column4, -0.5) AS key
    FROM (VALUES /* each */ (?, ?, ?, ?) /* end */) WHERE column1 IS NOT -0.5
)
SELECT json_group_array(json_array(
    given.n, process.status, process.inbox, process.seen, hex(process.owner), same.number, other.number
))
FROM given
JOIN process ON process.id = given.process
LEFT JOIN message AS same ON same.process = given.process AND same.id = given.id
LEFT JOIN message AS other ON other.key IS NOT NULL AND other.process = given.process AND other.key = given.key

-- name: insert_messages
INSERT INTO message (process, number, id, type, name, payload, key, sender, at)
SELECT column1, column2, column3, column4, column5, column6, nullif(column7, -0.5), nullif(column8, -0.5), column9
FROM /* rows */ (VALUES /* each */ (?, ?, ?, ?, ?, ?, ?, ?, ?) /* end */)
WHERE column1 IS NOT -0.5

-- name: raise_inboxes
-- A free running row becomes due now, or stays due if it was before (law nothing_unheard).
WITH given (id, inbox, now) AS (VALUES /* each */ (?, ?, ?) /* end */)
UPDATE process SET
    inbox = given.inbox,
    due_at = CASE
        WHEN process.status <> 1 OR process.owner IS NOT NULL THEN process.due_at
        WHEN process.reminder = 1 THEN given.now
        ELSE min(process.due_at, given.now)
    END,
    changed_at = CASE WHEN process.status = 1 AND process.owner IS NULL THEN given.now ELSE process.changed_at END,
    reminder = CASE WHEN process.status = 1 THEN 0 ELSE process.reminder END
FROM given WHERE process.id = given.id
