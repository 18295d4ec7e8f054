-- How many unfinished processes of each kind and version nobody has in hand, each counted up to 1,000: a few seeks for
-- each kind and version, however many processes there are. Nobody writes it: nothing can be handed in.
CREATE OR REPLACE FUNCTION perdure.backlogs(nothing int[]) RETURNS TABLE (kind text, code text, processes int)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE asleep AS (
        (SELECT p.kind, p.code FROM perdure.process p WHERE p.reminder ORDER BY p.kind, p.code LIMIT 1)
        UNION ALL
        SELECT n.kind, n.code FROM asleep CROSS JOIN LATERAL (
            SELECT p.kind, p.code FROM perdure.process p
            WHERE p.reminder AND (p.kind, p.code) > (asleep.kind, asleep.code)
            ORDER BY p.kind, p.code LIMIT 1) AS n
    ), pair AS (
        SELECT d.kind, d.code FROM perdure.due_pair d UNION SELECT * FROM asleep UNION
        SELECT p.kind, p.code FROM perdure.process p
        WHERE p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths >= 2
    )
    SELECT pair.kind, pair.code, count(*)::int FROM pair CROSS JOIN LATERAL (
        (SELECT FROM perdure.process p
         WHERE p.kind = pair.kind AND p.code = pair.code
           AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2 LIMIT 1000)
        UNION ALL
        (SELECT FROM perdure.process p WHERE p.kind = pair.kind AND p.code = pair.code AND p.reminder LIMIT 1000)
        UNION ALL
        (SELECT FROM perdure.process p
         WHERE p.kind = pair.kind AND p.code = pair.code
           AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths >= 2 LIMIT 1000)
        LIMIT 1000) AS one
    GROUP BY pair.kind, pair.code ORDER BY pair.kind, pair.code;
END
$$;
