-- For each process and number: its messages with higher numbers, of all together as much as is read at once; and every order to end (6).
CREATE OR REPLACE FUNCTION perdure.next_messages(processes uuid[], numbers int[], most bigint)
RETURNS SETOF perdure.message_out LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    SELECT o.* FROM (
        SELECT m.process, m.number, m.bytes, m.type, sum(m.bytes) OVER (ORDER BY m.process, m.number) AS total
        FROM unnest(processes, numbers) AS u(process, number)
        CROSS JOIN LATERAL (
            SELECT m.process, m.number, m.type, octet_length(m.payload) AS bytes FROM perdure.message m
            WHERE m.process = u.process AND m.number > u.number OFFSET 0) AS m) AS s
    CROSS JOIN LATERAL (
        SELECT o.* FROM perdure.message_out o WHERE o.process = s.process AND o.number = s.number OFFSET 0) AS o
    WHERE s.total - s.bytes < most OR s.type = 6
    ORDER BY o.process, o.number;
END
$$;
