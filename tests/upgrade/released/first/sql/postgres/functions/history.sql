-- Events of one run after a number, or before it and newest first (0: from the end); types and names narrow if given.
-- Published values of one name have an index of their own, which the form of their condition alone can use; so have the
-- answers to calls, of which each name's first is told, in that run or a later one.
CREATE OR REPLACE FUNCTION perdure.history(
    wanted uuid, of_run int, beyond int, most int, backward boolean, types int[], names text[]
) RETURNS SETOF perdure.event_out LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    below int := CASE WHEN beyond = 0 THEN 2147483647 ELSE beyond END;
BEGIN
    IF types = '{36}' AND cardinality(names) = 1 THEN
        IF backward THEN
            RETURN QUERY
            SELECT e.* FROM perdure.event_out e
            WHERE e.type = 36 AND (e.name, e.process, e.run, e.number) >= (names[1], wanted, of_run, 0)
              AND (e.name, e.process, e.run, e.number) < (names[1], wanted, of_run, below)
            ORDER BY e.name DESC, e.process DESC, e.run DESC, e.number DESC LIMIT most;
        ELSE
            RETURN QUERY
            SELECT e.* FROM perdure.event_out e
            WHERE e.type = 36 AND (e.name, e.process, e.run, e.number) > (names[1], wanted, of_run, beyond)
              AND (e.name, e.process, e.run, e.number) <= (names[1], wanted, of_run, 2147483647)
            ORDER BY e.name, e.process, e.run, e.number LIMIT most;
        END IF;
    ELSIF types = '{38,39}' AND names IS NOT NULL THEN
        RETURN QUERY
        SELECT f.* FROM unnest(names) AS n(name)
        CROSS JOIN LATERAL (
            SELECT e.* FROM perdure.event_out e
            WHERE e.type IN (38, 39) AND (e.name, e.process, e.run, e.number) >= (n.name, wanted, of_run, 0)
              AND (e.name, e.process, e.run, e.number) <= (n.name, wanted, 2147483647, 2147483647)
            ORDER BY e.name, e.process, e.run, e.number LIMIT 1) AS f
        LIMIT most;
    ELSIF backward THEN
        RETURN QUERY
        SELECT e.* FROM perdure.event_out e
        WHERE e.process = wanted AND e.run = of_run AND e.number < below
          AND (types IS NULL OR e.type = ANY (types)) AND (names IS NULL OR e.name = ANY (names))
        ORDER BY e.number DESC LIMIT most;
    ELSE
        RETURN QUERY
        SELECT e.* FROM perdure.event_out e
        WHERE e.process = wanted AND e.run = of_run AND e.number > beyond
          AND (types IS NULL OR e.type = ANY (types)) AND (names IS NULL OR e.name = ANY (names))
        ORDER BY e.number LIMIT most;
    END IF;
END
$$;
