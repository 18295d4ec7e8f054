-- Lock due suspects (processes that twice died with their worker) for a claim by a worker that runs them alone.
CREATE OR REPLACE FUNCTION perdure.claim_suspects(kinds text[], codes text[], most int, t timestamptz)
RETURNS SETOF uuid LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH taken AS MATERIALIZED (
        SELECT y.priority, c.due_at, c.id
        FROM unnest(kinds, codes) AS h(kind, code)
        CROSS JOIN generate_series(0, 9) AS y(priority)
        CROSS JOIN LATERAL (
            SELECT p.due_at, p.id FROM perdure.process p
            WHERE p.kind = h.kind AND p.code = h.code AND p.priority = y.priority AND p.due_at <= t
              AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths >= 2
            ORDER BY p.due_at, p.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED) AS c
    )
    SELECT taken.id FROM taken ORDER BY taken.priority, taken.due_at, taken.id LIMIT most;
END
$$;
