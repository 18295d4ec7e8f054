-- For each process and number: its messages with higher numbers.
CREATE OR REPLACE FUNCTION perdure.later_messages(processes uuid[], numbers int[])
RETURNS SETOF perdure.message_out LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    SELECT m.* FROM unnest(processes, numbers) AS u(process, number)
    CROSS JOIN LATERAL (
        SELECT o.* FROM perdure.message_out o WHERE o.process = u.process AND o.number > u.number OFFSET 0) AS m
    ORDER BY m.process, m.number;
END
$$;
