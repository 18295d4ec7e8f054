-- Events of one run after a number, or before it and newest first (0: from the end).
CREATE OR REPLACE FUNCTION perdure.history(wanted uuid, of_run int, beyond int, most int, backward boolean)
RETURNS SETOF perdure.event_out LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF backward THEN
        RETURN QUERY
        SELECT e.* FROM perdure.event_out e
        WHERE e.process = wanted AND e.run = of_run AND e.number < CASE WHEN beyond = 0 THEN 2147483647 ELSE beyond END
        ORDER BY e.number DESC LIMIT most;
    ELSE
        RETURN QUERY
        SELECT e.* FROM perdure.event_out e
        WHERE e.process = wanted AND e.run = of_run AND e.number > beyond ORDER BY e.number LIMIT most;
    END IF;
END
$$;
