-- name: enlist_worker
INSERT INTO worker (id, name, hosts, started_at, beats, due_at, locked, ended_at, died)
VALUES (:id, :name, :hosts, :now, 0, :due_at, :locked, NULL, 0)
ON CONFLICT (id) DO NOTHING

-- name: count_beat
UPDATE worker SET beats = beats + 1, figures = coalesce(:figures, figures),
    due_at = :due_at, hang = NULL WHERE id = :id AND ended_at IS NULL

-- name: keep_hang
UPDATE worker SET hang = :hang WHERE id = :id

-- name: renew_leases
-- Each given row names the owner that its process must have. SQLite goes through these rows, one seek each: the plus
-- makes it do so.
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
    hex(id), name, hex(hosts), started_at, beats, due_at, locked, ended_at, died, iif(hang IS NULL, NULL, hex(hang)),
    iif(figures IS NULL, NULL, hex(figures))
)) FROM (
    SELECT * FROM worker WHERE ended_at IS NULL
    UNION ALL
    SELECT * FROM worker WHERE ended_at IS NOT NULL AND :ended
    ORDER BY id
)

-- name: read_workers_of
WITH given (id) AS (VALUES /* each */ (?) /* end */)
SELECT json_group_array(json_array(
    hex(worker.id), name, hex(hosts), started_at, beats, due_at, locked, ended_at, died,
    iif(hang IS NULL, NULL, hex(hang)), iif(figures IS NULL, NULL, hex(figures))
)) FROM given CROSS JOIN worker ON worker.id = given.id

-- name: forget_workers
DELETE FROM worker WHERE ended_at <= :before AND NOT EXISTS (SELECT 1 FROM process WHERE process.owner = worker.id)

-- name: read_schema
-- The number of the schema, and the lowest number whose Perdure may use the database.
SELECT (SELECT user_version FROM pragma_user_version), (SELECT oldest FROM schema_reader)
