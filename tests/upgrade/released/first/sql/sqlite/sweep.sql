-- The ways to be overdue, each a query on its own index, the longest overdue first. :now, :most rows, an :owner.

-- name: overdue_orphaned
WITH RECURSIVE
owners (owner) AS (
    SELECT min(owner) FROM process INDEXED BY process_owned WHERE owner IS NOT NULL
    UNION ALL
    SELECT (SELECT min(owner) FROM process INDEXED BY process_owned WHERE owner > owners.owner)
    FROM owners WHERE owners.owner IS NOT NULL
)
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT p.head, p.body FROM owners CROSS JOIN packed_process AS p ON p.owner = owners.owner
    WHERE NOT EXISTS (SELECT 1 FROM worker WHERE worker.id = owners.owner AND worker.ended_at IS NULL)
    ORDER BY p.due_at, p.id LIMIT :most
)

-- name: overdue_lapsed
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT head, body FROM packed_process WHERE owner IS NOT NULL AND due_at <= :now
    ORDER BY due_at, id LIMIT :most
)

-- name: overdue_expired
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT head, body FROM packed_process WHERE deadline IS NOT NULL AND status <= 3 AND deadline <= :now
    ORDER BY deadline, id LIMIT :most
)

-- name: overdue_idle
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT head, body FROM packed_process WHERE reminder = 1 AND due_at <= :now
    ORDER BY due_at, id LIMIT :most
)

-- name: overdue_owned
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT head, body FROM packed_process WHERE owner IS NOT NULL AND owner = :owner
    ORDER BY due_at, id LIMIT :most
)

-- name: overdue_unhosted
-- One seek for each kind, code and priority there is; each gives no more rows than are asked for.
WITH
longest (due_at) AS (SELECT :now - 60000000),
priorities (priority) AS (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)),
ends (kind, code, priority, due_at) AS MATERIALIZED (
    SELECT due_pair.kind, due_pair.code, priorities.priority, coalesce((
        SELECT due_at FROM process INDEXED BY process_due
        WHERE kind = due_pair.kind AND code = due_pair.code AND priority = priorities.priority
        AND due_at <= (SELECT due_at FROM longest)
        AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2
        ORDER BY due_at LIMIT 1 OFFSET max(:most - 1, 0)
    ), (SELECT due_at FROM longest))
    FROM due_pair CROSS JOIN priorities
),
found (due_at, id) AS (
    SELECT process.due_at, process.id FROM ends CROSS JOIN process INDEXED BY process_due
    ON process.kind = ends.kind AND process.code = ends.code AND process.priority = ends.priority
    AND process.due_at <= ends.due_at
    AND process.status = 1 AND process.owner IS NULL AND process.reminder = 0 AND process.deaths < 2
    UNION ALL
    SELECT due_at, id FROM process INDEXED BY process_suspect
    WHERE status = 1 AND owner IS NULL AND reminder = 0 AND deaths >= 2 AND due_at <= (SELECT due_at FROM longest)
)
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT p.head, p.body FROM (SELECT due_at, id FROM found ORDER BY due_at, id LIMIT :most) AS first
    CROSS JOIN packed_process AS p ON p.id = first.id ORDER BY first.due_at, first.id
)

-- name: find_finished
-- Candidates of a pruning, looked for without the write lock: those finished longest ago, one seek per final status.
SELECT json_group_array(json_array(hex(id), (SELECT events * run FROM process WHERE process.id = old.id))) FROM (
    SELECT * FROM (
        SELECT changed_at, id FROM process INDEXED BY process_rested
        WHERE status >= 2 AND status = 4 AND changed_at <= :before ORDER BY changed_at, id LIMIT :most
    )
    UNION ALL
    SELECT * FROM (
        SELECT changed_at, id FROM process INDEXED BY process_rested
        WHERE status >= 2 AND status = 5 AND changed_at <= :before ORDER BY changed_at, id LIMIT :most
    )
    UNION ALL
    SELECT * FROM (
        SELECT changed_at, id FROM process INDEXED BY process_rested
        WHERE status >= 2 AND status = 6 AND changed_at <= :before ORDER BY changed_at, id LIMIT :most
    )
    ORDER BY changed_at, id LIMIT :most
) AS old

-- name: read_finished
-- Those of the candidates that are still finished long ago, with what is needed to keep their keys.
WITH common (before) AS (SELECT ?), given (id) AS (VALUES /* each */ (?) /* end */)
SELECT json_group_array(json_array(hex(p.id), p.kind, p.key, length(p.input))),
    CAST(group_concat(p.input, '') AS BLOB)
FROM given CROSS JOIN process AS p ON p.id = given.id
WHERE p.status >= 4 AND p.changed_at <= (SELECT before FROM common)

-- name: keep_keys
INSERT INTO key_kept (kind, key, process, digest, due_at)
SELECT * FROM (VALUES /* each */ (?, ?, ?, ?, ?) /* end */) WHERE column3 IS NOT -0.5
ON CONFLICT (kind, key) DO UPDATE SET
    process = excluded.process, digest = excluded.digest, due_at = excluded.due_at

-- name: prune_events
DELETE FROM event WHERE process IN (VALUES /* each */ (?) /* end */)

-- name: prune_messages
DELETE FROM message WHERE process IN (VALUES /* each */ (?) /* end */)

-- name: prune_processes
DELETE FROM process WHERE id IN (VALUES /* each */ (?) /* end */)

-- name: prune_keys
DELETE FROM key_kept WHERE (kind, key) IN (SELECT kind, key FROM key_kept WHERE due_at <= :now ORDER BY due_at LIMIT :most)
