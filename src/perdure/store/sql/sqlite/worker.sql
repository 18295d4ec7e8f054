-- name: enlist_worker
INSERT INTO worker (id, name, hosts, started_at, beats, due_at, locked, ended_at, died)
VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6, NULL, 0)
ON CONFLICT (id) DO NOTHING

-- name: count_beat
UPDATE worker SET beats = beats + 1, due_at = ?2 WHERE id = ?1 AND ended_at IS NULL

-- name: renew_leases
-- (What a batch has in common is named first, so that it has the first numbers.)
WITH common (worker, due_at) AS (SELECT ?1, ?2), given (id, token, progress) AS (VALUES /* each */ (?, ?, ?) /* end */)
UPDATE process SET due_at = max(process.due_at, ?2), progress = coalesce(given.progress, process.progress)
FROM given WHERE process.id = given.id AND process.owner = ?1 AND process.token = given.token

-- name: look_for_lost
-- The rows of a beat that this worker owns no more, or not under this token.
WITH common (worker) AS (SELECT ?1), given (id, token, progress) AS (VALUES /* each */ (?, ?, ?) /* end */)
SELECT json_group_array(hex(given.id)) FROM given LEFT JOIN process ON process.id = given.id
WHERE given.id IS NOT NULL AND (process.owner IS NOT ?1 OR process.token IS NOT given.token)

-- name: retire_worker
UPDATE worker SET ended_at = ?2, due_at = NULL, died = ?4
WHERE id = ?1 AND ended_at IS NULL AND (?3 IS NULL OR beats <= ?3)

-- name: read_workers
SELECT json_group_array(json_array(
    hex(id), name, hex(hosts), started_at, beats, due_at, locked, ended_at, died
)) FROM (SELECT * FROM worker WHERE ended_at IS NULL OR ?1 ORDER BY id)

-- name: read_worker
SELECT json_group_array(json_array(
    hex(id), name, hex(hosts), started_at, beats, due_at, locked, ended_at, died
)) FROM worker WHERE id = ?1

-- name: forget_workers
DELETE FROM worker WHERE ended_at <= ?1 AND NOT EXISTS (SELECT 1 FROM process WHERE process.owner = worker.id)
