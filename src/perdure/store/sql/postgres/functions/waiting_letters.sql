-- Letters that a process has heard and not received, of one name each: those that are marked, and those above the row's
-- number that only its owner has heard. So many of each, and as much as is read at once.
CREATE OR REPLACE FUNCTION perdure.waiting_letters(
    processes uuid[], names text[], afters int[], seens int[], uptos int[], mosts int[], bytes bigint
) RETURNS SETOF perdure.message_out LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    SELECT o.* FROM unnest(processes, names, afters, seens, uptos, mosts) AS u(process, name, after, seen, upto, most)
    CROSS JOIN LATERAL (
        SELECT f.number, f.size, sum(f.size) OVER (ORDER BY f.number) AS total FROM (
            SELECT l.number, l.size FROM (
                SELECT m.number, octet_length(m.payload) AS size FROM perdure.message m
                WHERE m.process = u.process AND m.name = u.name AND m.waits AND m.number > u.after AND m.number <= u.upto
                  AND m.consumed_by IS NULL
                UNION ALL
                SELECT m.number, octet_length(m.payload) AS size FROM perdure.message m
                WHERE m.process = u.process AND m.number > greatest(u.after, u.seen) AND m.number <= u.upto
                  AND m.name = u.name AND m.type IN (1, 7) AND m.consumed_by IS NULL AND m.waits IS NULL) AS l
            ORDER BY l.number LIMIT u.most) AS f) AS s
    CROSS JOIN LATERAL (
        SELECT o.* FROM perdure.message_out o WHERE o.process = u.process AND o.number = s.number OFFSET 0) AS o
    WHERE s.total - s.size < bytes
    ORDER BY o.process, o.number;
END
$$;
