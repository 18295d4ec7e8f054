-- Lock due processes for a claim: first see (unlocked) how many each kind and priority may give in due order, then
-- take as many from each, passing by what others hold. Candidates are MATERIALIZED: no join can re-run a limit (rule 8).
CREATE OR REPLACE FUNCTION perdure.claim_due(kinds text[], codes text[], most int, t timestamptz)
RETURNS SETOF uuid LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH seen AS MATERIALIZED (
        SELECT h.kind, h.code, y.priority, c.due_at, c.id
        FROM unnest(kinds, codes) AS h(kind, code)
        CROSS JOIN generate_series(0, 9) AS y(priority)
        CROSS JOIN LATERAL (
            SELECT p.due_at, p.id FROM perdure.process p
            WHERE p.kind = h.kind AND p.code = h.code AND p.priority = y.priority AND p.due_at <= t
              AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
            ORDER BY p.due_at, p.id LIMIT most) AS c
        ORDER BY y.priority, c.due_at, c.id LIMIT most
    ), share AS MATERIALIZED (
        SELECT seen.kind, seen.code, seen.priority, count(*) AS rows FROM seen GROUP BY 1, 2, 3
    ), taken AS MATERIALIZED (
        SELECT s.priority, c.due_at, c.id
        FROM share s
        CROSS JOIN LATERAL (
            SELECT p.due_at, p.id FROM perdure.process p
            WHERE p.kind = s.kind AND p.code = s.code AND p.priority = s.priority AND p.due_at <= t
              AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
            ORDER BY p.due_at, p.id LIMIT s.rows FOR NO KEY UPDATE SKIP LOCKED) AS c
    )
    SELECT taken.id FROM taken ORDER BY taken.priority, taken.due_at, taken.id;
END
$$;
