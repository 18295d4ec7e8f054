-- name: look_at_starts
-- What is in the way of starts: their own rows (a resend), or their keys, taken by a process or kept after its pruning.
WITH common (now) AS (SELECT ?),
given AS (
    SELECT column1 AS n, column2 AS id, column3 AS kind, nullif(column4, -0.5) AS key, column5 AS input
    FROM (VALUES /* each */ (?, ?, ?, ?, ?) /* end */) WHERE column1 IS NOT -0.5
)
SELECT json_group_array(json_array(
    given.n, own.id IS NOT NULL, own.inbox, hex(holder.id), holder.inbox, holder.input = given.input,
    hex(kept.process), hex(kept.digest)
))
FROM given
LEFT JOIN process AS own ON own.id = given.id
LEFT JOIN process AS holder ON holder.key IS NOT NULL AND holder.kind = given.kind AND holder.key = given.key
LEFT JOIN key_kept AS kept ON kept.kind = given.kind AND kept.key = given.key AND kept.due_at > (SELECT now FROM common)
WHERE own.id IS NOT NULL OR holder.id IS NOT NULL OR kept.process IS NOT NULL

-- name: insert_processes
-- -0.5 stands for NULL in what is handed over (see Connection). A row whose id or key
-- is taken already is left out, which the count of changed rows tells; and so is one that has begun (it has a token) and
-- whose kind has limits, unless it brings its place.
INSERT INTO process (
    id, kind, key, input, status, run, version, token, owner, due_at, reminder, inbox, seen, events, awaiting, deaths,
    alone_deaths, deadline, priority, attributes, state, progress, result, error, parent, code, created_at, opened_at,
    changed_at, share, cost
)
SELECT
    column1, column2, nullif(column3, -0.5), column4, column5, column6, column7, column8, nullif(column9, -0.5),
    nullif(column10, -0.5), column11, column12, column13, column14, nullif(column15, -0.5), column16, column17,
    nullif(column18, -0.5), column19, nullif(column20, -0.5), nullif(column21, -0.5), nullif(column22, -0.5),
    nullif(column23, -0.5), nullif(column24, -0.5), nullif(column25, -0.5), column26, column27,
    nullif(column28, -0.5), column29, nullif(column30, -0.5), nullif(column31, -0.5)
FROM /* rows */ (VALUES
    /* each */ (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) /* end */
)
WHERE column1 IS NOT -0.5
AND (column3 = -0.5 OR NOT EXISTS (
    SELECT 1 FROM key_kept WHERE key_kept.kind = column2 AND key_kept.key = column3 AND key_kept.due_at > column29
))
AND (column8 = 0 OR column30 <> -0.5 OR ' kind ' || column2 NOT IN (
    SELECT name FROM queue WHERE name > ' kind ' AND name < ' kind!' AND (concurrency IS NOT NULL OR rate IS NOT NULL)
))
ON CONFLICT DO NOTHING

-- name: insert_events
INSERT INTO event (process, run, number, turn, type, at, place, name, payload, digest, message, token, version)
SELECT
    column1, column2, column3, column4, column5, column6, column7, column8, nullif(column9, -0.5),
    nullif(column10, -0.5), nullif(column11, -0.5), column12, column13
FROM /* rows */ (VALUES /* each */ (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) /* end */)
WHERE column1 IS NOT -0.5
