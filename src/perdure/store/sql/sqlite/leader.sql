-- The rows of leaders.

-- name: read_leaders
SELECT json_group_array(json_array(
    name, version, term, candidate, program, since, until, json(iif(released, 'true', 'false')), changed_at, who, why, origin
)) FROM (SELECT * FROM leader ORDER BY name)

-- name: write_leader
INSERT INTO leader (name, version, term, candidate, program, since, until, released, changed_at, who, why, origin)
SELECT :name, :version, :term, :candidate, :program, :since, :until, :released, :changed_at, :who, :why, :origin
WHERE :version = 1 OR EXISTS (SELECT 1 FROM leader WHERE name = :name)
ON CONFLICT (name) DO UPDATE SET
    version = excluded.version, term = excluded.term, candidate = excluded.candidate, program = excluded.program,
    since = excluded.since, until = excluded.until, released = excluded.released, changed_at = excluded.changed_at,
    who = excluded.who, why = excluded.why, origin = excluded.origin
WHERE excluded.version = leader.version + 1
