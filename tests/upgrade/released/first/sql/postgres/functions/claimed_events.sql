-- The histories of claimed processes. Events later than the claimed row are of another owner's commit, which came in
-- between: left out (rule 3).
CREATE OR REPLACE FUNCTION perdure.claimed_events(processes uuid[], runs int[], counts int[])
RETURNS SETOF perdure.event_out LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    SELECT e.* FROM unnest(processes, runs, counts) AS u(process, run, events)
    CROSS JOIN LATERAL (
        SELECT o.* FROM perdure.event_out o
        WHERE o.process = u.process AND o.run = u.run AND o.number <= u.events OFFSET 0) AS e
    ORDER BY e.process, e.number;
END
$$;
