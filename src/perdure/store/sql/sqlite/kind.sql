-- Kinds with limits: what has a place, what waits for one, and who gets it (kernel/kind.py). Their rows are those of queues.

-- name: places_of_kind
SELECT count(*) FROM process INDEXED BY process_place WHERE kind = :kind AND share = ' place' AND due_at IS NOT NULL

-- name: due_with_place
-- The first due processes that have a place.
SELECT json_group_array(json_array(priority, due_at, hex(id), bytes)) FROM (
    SELECT priority, due_at, id,
        length(input) + coalesce(length(state), 0) + coalesce(length(result), 0) + coalesce(length(error), 0) AS bytes
    FROM process INDEXED BY process_place
    WHERE kind = :kind AND code IN (SELECT value FROM json_each(:codes)) AND share = ' place' AND due_at <= :now
    AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2
    ORDER BY priority, due_at, id LIMIT :most
)

-- name: due_without_place
-- The first due processes of one code and priority that wait for a place.
SELECT json_group_array(json_array(priority, due_at, hex(id), bytes)) FROM (
    SELECT priority, due_at, id,
        length(input) + coalesce(length(state), 0) + coalesce(length(result), 0) + coalesce(length(error), 0) AS bytes
    FROM process INDEXED BY process_due
    WHERE kind = :kind AND code = :code AND priority = :priority AND due_at <= :now AND share IS NOT ' place'
    AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2
    ORDER BY due_at, id LIMIT :most
)

-- name: give_places
UPDATE process SET share = ' place' WHERE id IN (VALUES /* each */ (?) /* end */)

-- name: mark_begun
-- A kind gets limits: its processes that have begun have their places already. One look at each index of unfinished rows.
UPDATE process SET share = ' place' WHERE id IN (
    SELECT id FROM process INDEXED BY process_due
    WHERE kind = :kind AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2 AND opened_at IS NOT NULL
    UNION ALL
    SELECT id FROM process INDEXED BY process_suspect
    WHERE kind = :kind AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths >= 2 AND opened_at IS NOT NULL
    UNION ALL
    SELECT id FROM process INDEXED BY process_asleep WHERE kind = :kind AND reminder = 1 AND opened_at IS NOT NULL
    UNION ALL
    SELECT id FROM process INDEXED BY process_owned WHERE kind = :kind AND owner IS NOT NULL
)
