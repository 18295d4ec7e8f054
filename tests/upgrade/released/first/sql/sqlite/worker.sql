-- name: enlist_worker
INSERT INTO worker (id, name, hosts, started_at, beats, due_at, locked, ended_at, died)
VALUES (:id, :name, :hosts, :now, 0, :due_at, :locked, NULL, 0)
ON CONFLICT (id) DO NOTHING

-- name: count_beat
UPDATE worker SET beats = beats + 1, due_at = :due_at WHERE id = :id AND ended_at IS NULL

-- name: renew_leases
-- Each row says whose it must be. The rows handed over are gone through, one seek each (the plus keeps it so).
UPDATE process SET due_at = max(process.due_at, ?), progress = coalesce(nullif(given.progress, -0.5), process.progress)
FROM (
    SELECT column1 AS id, column2 AS token, column3 AS owner, column4 AS progress
    FROM (VALUES /* each */ (?, ?, ?, ?) /* end */)
) AS given
WHERE process.id = given.id AND +process.owner = given.owner AND process.token = given.token

-- name: look_for_lost
-- The rows of a beat that this worker owns no more, or not under this token.
WITH given (id, token, owner, progress) AS (VALUES /* each */ (?, ?, ?, ?) /* end */)
SELECT json_group_array(hex(given.id)) FROM given LEFT JOIN process ON process.id = given.id
WHERE given.id IS NOT -0.5 AND (process.owner IS NOT given.owner OR process.token IS NOT given.token)

-- name: retire_worker
UPDATE worker SET ended_at = :now, due_at = NULL, died = :died
WHERE id = :id AND ended_at IS NULL AND (:beats IS NULL OR beats <= :beats)

-- name: read_workers
SELECT json_group_array(json_array(
    hex(id), name, hex(hosts), started_at, beats, due_at, locked, ended_at, died
)) FROM (SELECT * FROM worker WHERE ended_at IS NULL OR :ended ORDER BY id)

-- name: read_worker
SELECT json_group_array(json_array(
    hex(id), name, hex(hosts), started_at, beats, due_at, locked, ended_at, died
)) FROM worker WHERE id = :id

-- name: forget_workers
DELETE FROM worker WHERE ended_at <= :before AND NOT EXISTS (SELECT 1 FROM process WHERE process.owner = worker.id)
