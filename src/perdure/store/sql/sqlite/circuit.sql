-- The circuits of breakers.

-- name: read_circuits
SELECT json_group_array(json_array(
    name, version, state, since, until, reason, json(iif(forced, 'true', 'false')), opened, failures, counted_from, probes,
    successes, worker, changed_at, who, why, origin
)) FROM (SELECT * FROM circuit ORDER BY name)

-- name: write_circuit
INSERT INTO circuit (
    name, version, state, since, until, reason, forced, opened, failures, counted_from, probes, successes, worker,
    changed_at, who, why, origin
)
SELECT
    :name, :version, :state, :since, :until, :reason, :forced, :opened, :failures, :counted_from, :probes, :successes,
    :worker, :changed_at, :who, :why, :origin
WHERE :version = 1 OR EXISTS (SELECT 1 FROM circuit WHERE name = :name)
ON CONFLICT (name) DO UPDATE SET
    version = excluded.version, state = excluded.state, since = excluded.since, until = excluded.until,
    reason = excluded.reason, forced = excluded.forced, opened = excluded.opened, failures = excluded.failures,
    counted_from = excluded.counted_from, probes = excluded.probes, successes = excluded.successes,
    worker = excluded.worker, changed_at = excluded.changed_at, who = excluded.who, why = excluded.why, origin = excluded.origin
WHERE excluded.version = circuit.version + 1
