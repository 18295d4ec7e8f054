-- The messages of claimed processes: what has not been consumed, and what the events of the run refer to.
CREATE OR REPLACE FUNCTION perdure.claimed_messages(processes uuid[], runs int[])
RETURNS SETOF perdure.message_out LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    SELECT m.* FROM unnest(processes, runs) AS u(process, run)
    CROSS JOIN LATERAL (
        SELECT o.* FROM perdure.message_out o
        WHERE o.process = u.process AND (o.consumed_by IS NULL OR o.number = ANY (ARRAY(
            SELECT e.message FROM perdure.event e
            WHERE e.process = u.process AND e.run = u.run AND e.message IS NOT NULL)))
        OFFSET 0) AS m
    ORDER BY m.process, m.number;
END
$$;
