-- name: look_at_starts
-- What is in the way of starts: their own rows (a resend), or their keys, taken by a process or kept after its pruning.
WITH common (now) AS (SELECT ?1), given (n, id, kind, key, input) AS (VALUES /* each */ (?, ?, ?, ?, ?) /* end */)
SELECT json_group_array(json_array(
    given.n, own.id IS NOT NULL, own.inbox, hex(holder.id), holder.inbox, holder.input = given.input,
    hex(kept.id), hex(kept.input_digest)
))
FROM given
LEFT JOIN process AS own ON own.id = given.id
LEFT JOIN process AS holder ON holder.kind = given.kind AND holder.key = given.key AND holder.key IS NOT NULL
LEFT JOIN key_kept AS kept ON kept.kind = given.kind AND kept.key = given.key AND kept.until > ?1
WHERE given.n IS NOT NULL AND (own.id IS NOT NULL OR holder.id IS NOT NULL OR kept.id IS NOT NULL)

-- name: insert_processes
-- Rows of NULL fill the batch up. A row whose id or key is there already is left out, which the count of rows tells.
INSERT INTO process (
    id, kind, key, input, status, run, version, token, owner, due_at, reminder, inbox, seen, events, awaiting, deaths,
    alone_deaths, deadline, priority, attributes, state, progress, result, error, parent, code, created_at, opened_at,
    changed_at
)
SELECT * FROM (VALUES
    /* each */ (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) /* end */
)
WHERE column2 IS NOT NULL
ON CONFLICT DO NOTHING

-- name: insert_events
INSERT INTO event (process, run, number, turn, type, at, place, name, payload, digest, message, token, version)
SELECT * FROM (VALUES /* each */ (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) /* end */) WHERE column1 IS NOT NULL
