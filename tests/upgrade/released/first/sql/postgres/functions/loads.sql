-- How many tasks of each queue, share and cost are in somebody's hands. Nobody writes it: nothing can be handed in.
CREATE OR REPLACE FUNCTION perdure.loads(nothing int[]) RETURNS TABLE (name text, share text, cost int, tasks int)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT substr(p.kind, 2), p.share, coalesce(p.cost, 1), count(*)::int
    FROM perdure.process p
    WHERE p.kind < 'A' AND p.kind >= '@' AND p.owner IS NOT NULL
    GROUP BY p.kind, p.share, coalesce(p.cost, 1)
    ORDER BY p.kind, p.share NULLS FIRST, coalesce(p.cost, 1);
END
$$;
