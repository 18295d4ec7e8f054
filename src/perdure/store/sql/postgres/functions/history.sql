-- Events and messages of processes: those that a claim reads, and those that are asked for.

-- The histories of claimed processes, each from some event on. Events later than the claimed row are of another owner's commit, which came in
-- between: left out (rule 3).
CREATE OR REPLACE FUNCTION perdure.claimed_events_from(processes uuid[], runs int[], firsts int[], counts int[])
RETURNS SETOF perdure.event_out LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    SELECT e.* FROM unnest(processes, runs, firsts, counts) AS u(process, run, first, events)
    CROSS JOIN LATERAL (
        SELECT o.* FROM perdure.event_out o
        WHERE o.process = u.process AND o.run = u.run AND o.number BETWEEN u.first AND u.events OFFSET 0) AS e
    ORDER BY e.process, e.number;
END
$$;

-- The same from the first event on: workers that know no schema above 9 ask so.
CREATE OR REPLACE FUNCTION perdure.claimed_events(processes uuid[], runs int[], counts int[])
RETURNS SETOF perdure.event_out LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    SELECT e.* FROM perdure.claimed_events_from(processes, runs, array_fill(1, ARRAY[cardinality(counts)]), counts) AS e;
END
$$;

-- In which of these inboxes fewer letters wait than the row counts, with both numbers. One that came later would be
-- received in the place of the one that is missing. Where very many wait nobody counts.
CREATE OR REPLACE FUNCTION perdure.lacking_letters(processes uuid[])
RETURNS TABLE (process uuid, counted int, there int) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT p.id, p.waiting, t.there::int FROM unnest(processes) AS u(id)
    CROSS JOIN LATERAL (
        SELECT o.id, o.waiting, o.seen FROM perdure.process o
        WHERE o.id = u.id AND o.waiting BETWEEN 1 AND 1000 OFFSET 0) AS p
    CROSS JOIN LATERAL (
        SELECT (SELECT count(*) FROM perdure.message m WHERE m.process = p.id AND m.waits)
            + (SELECT count(*) FROM perdure.message m WHERE m.process = p.id AND m.number > p.seen
               AND m.type IN (1, 7) AND m.consumed_by IS NULL AND m.waits IS NULL) AS there OFFSET 0) AS t
    WHERE t.there < p.waiting;
END
$$;

-- The messages of claimed processes: what has not been consumed, and what the events of the run refer to.
CREATE OR REPLACE FUNCTION perdure.claimed_messages(processes uuid[], runs int[])
RETURNS SETOF perdure.message_out LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
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

-- For each process and number: its messages with higher numbers.
CREATE OR REPLACE FUNCTION perdure.later_messages(processes uuid[], numbers int[])
RETURNS SETOF perdure.message_out LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
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

-- For each process and number: its messages with higher numbers, up to so many bytes in all; and every order to end (6).
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

-- The messages of claimed processes: those to which the events of their runs refer, and unheard ones, of these up to so
-- many bytes in all. Before them comes a row without an id for each process whose inbox holds waiting letters.
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
    SELECT NULL::uuid, l.process, NULL::smallint, NULL::text, NULL::bytea, NULL::text, NULL::bytea, 0, NULL::bigint,
           l.counted, l.there
    FROM perdure.lacking_letters(processes) AS l;
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

-- Letters that a process has heard and not received, of one name each: those that are marked, and those above the row's
-- number that only its owner has heard. At most so many of each, and so many bytes in all.
CREATE OR REPLACE FUNCTION perdure.waiting_letters(
    processes uuid[], names text[], afters int[], seens int[], uptos int[], mosts int[], bytes bigint
) RETURNS SETOF perdure.message_out LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT * FROM perdure.lacking_letters(processes) LOOP
        RAISE EXCEPTION USING ERRCODE = 'PD001', MESSAGE = 'letters are missing',
            DETAIL = json_build_array(encode(uuid_send(one.process), 'base64'), one.counted, one.there);
    END LOOP;
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

-- Events of one run after a number, or before it and newest first (0: from the end); types and names narrow if given.
-- Published values of one name have an index of their own, which only this form of the condition can use. So have answers
-- to calls: the first of each name is found, in that run or a later one.
CREATE OR REPLACE FUNCTION perdure.history(
    wanted uuid, of_run int, beyond int, most int, backward boolean, types int[], names text[]
) RETURNS SETOF perdure.event_out LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
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

-- The answers to calls, for a login that may send calls and may not read the rest of a history.
CREATE OR REPLACE FUNCTION perdure.answers_seen(
    wanted uuid, of_run int, beyond int, most int, backward boolean, types int[], names text[]
) RETURNS SETOF perdure.event_out LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (types = '{38,39}' AND names IS NOT NULL) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'this login may not read histories, only the answers to its calls';
    END IF;
    RETURN QUERY SELECT * FROM perdure.history(wanted, of_run, beyond, most, backward, types, names);
END
$$;
