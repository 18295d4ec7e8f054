-- The messages of claimed processes: what the events of their runs refer to, and what they have not heard, of that as much
-- as is read at once. In front of them a row without an id for each process that has letters waiting in its inbox.
CREATE OR REPLACE FUNCTION perdure.held_letters(processes uuid[], runs int[], seens int[], most bigint)
RETURNS SETOF perdure.message_out LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    SELECT NULL::uuid, u.process, NULL::smallint, NULL::text, NULL::bytea, NULL::text, NULL::bytea, 0, NULL::bigint,
           NULL::int, NULL::int
    FROM unnest(processes) AS u(process)
    WHERE EXISTS (SELECT FROM perdure.message m WHERE m.process = u.process AND m.waits OFFSET 0);
    RETURN QUERY
    SELECT m.* FROM unnest(processes, runs) AS u(process, run)
    CROSS JOIN LATERAL (
        SELECT o.* FROM perdure.message_out o
        WHERE o.process = u.process AND o.number = ANY (ARRAY(
            SELECT e.message FROM perdure.event e
            WHERE e.process = u.process AND e.run = u.run AND e.message IS NOT NULL))
        OFFSET 0) AS m
    ORDER BY m.process, m.number;
    RETURN QUERY SELECT m.* FROM perdure.next_messages(processes, seens, most) AS m;
END
$$;
