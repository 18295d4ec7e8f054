-- What checks have found, and how far the checks in the background have come.

-- name: read_keptfindings
SELECT json_group_array(json_array(
    name, version, law, process, kind, text, since, seen_at, gone_at, mended_by, mended, json('false')
)) FROM (SELECT * FROM finding ORDER BY name)

-- name: write_keptfinding
INSERT INTO finding (name, version, law, process, kind, text, since, seen_at, gone_at, mended_by, mended)
SELECT :name, :version, :law, :process, :kind, :text, :since, :seen_at, :gone_at, :mended_by, :mended
WHERE NOT :removed AND (:version = 1 OR EXISTS (SELECT 1 FROM finding WHERE name = :name))
ON CONFLICT (name) DO UPDATE SET
    version = excluded.version, law = excluded.law, process = excluded.process, kind = excluded.kind,
    text = excluded.text, since = excluded.since, seen_at = excluded.seen_at, gone_at = excluded.gone_at,
    mended_by = excluded.mended_by, mended = excluded.mended
WHERE excluded.version = finding.version + 1

-- name: remove_keptfinding
DELETE FROM finding WHERE name = :name AND version + 1 = :version

-- name: read_audits
-- Before it is first written it is as new, and knows the line that the database is on, unless another line was drawn since
-- the database was made: then that one is news.
SELECT json_group_array(json_array(
    'background', coalesce(a.version, 0), coalesce(a.due_at, 0), coalesce(a.worker, ''), coalesce(a.place, '[]'),
    coalesce(a.begun_at, 0), coalesce(a.checked, 0), coalesce(a.found, 0), coalesce(a.rounds, 0), a.ended_at,
    coalesce(a.line, iif(c.line_at = 0, coalesce(c.line, ''), '')), coalesce(c.line, '')
)) FROM clock c LEFT JOIN audit a ON a.name = 'background'

-- name: write_audit
INSERT INTO audit (name, version, due_at, worker, place, begun_at, checked, found, rounds, ended_at, line)
SELECT :name, :version, :due_at, :worker, :place, :begun_at, :checked, :found, :rounds, :ended_at, :line
WHERE :version = 1 OR EXISTS (SELECT 1 FROM audit WHERE name = :name)
ON CONFLICT (name) DO UPDATE SET
    version = excluded.version, due_at = excluded.due_at, worker = excluded.worker, place = excluded.place,
    begun_at = excluded.begun_at, checked = excluded.checked, found = excluded.found, rounds = excluded.rounds,
    ended_at = excluded.ended_at, line = excluded.line
WHERE excluded.version = audit.version + 1
