-- Kinds with limits: what has a place among the processes of its kind, what waits for one, and who gets it; see
-- kernel/kind.py, which says the same in Python. The limits stand in the table of queues, under a name that no queue has.

-- Whether a kind has limits.
CREATE OR REPLACE FUNCTION perdure.kind_limited(wanted text) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM perdure.queue q
        WHERE q.name = ' kind ' || wanted AND (q.concurrency IS NOT NULL OR q.rate IS NOT NULL));
END
$$;

-- How many processes of a kind have a place, whoever holds them.
CREATE OR REPLACE FUNCTION perdure.kind_places(wanted text) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN (SELECT count(*) FROM perdure.process p WHERE p.kind = wanted AND p.share = ' place' AND p.due_at IS NOT NULL);
END
$$;

-- Give a place to what has begun of a kind before it had limits, or only to what a worker holds now. Rows that others have
-- locked are left out: nobody waits here for a transaction of a caller's own.
CREATE OR REPLACE FUNCTION perdure.mark_begun(wanted text, held boolean) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    begun uuid[];
BEGIN
    SELECT array_agg(f.id) INTO begun FROM (
        SELECT p.id FROM perdure.process p WHERE p.owner IS NOT NULL AND p.kind = wanted
        UNION ALL
        SELECT p.id FROM perdure.process p
        WHERE NOT held AND p.kind = wanted AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
          AND p.opened_at IS NOT NULL
        UNION ALL
        SELECT p.id FROM perdure.process p
        WHERE NOT held AND p.kind = wanted AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths >= 2
          AND p.opened_at IS NOT NULL
        UNION ALL
        SELECT p.id FROM perdure.process p WHERE NOT held AND p.kind = wanted AND p.reminder AND p.opened_at IS NOT NULL) AS f;
    UPDATE perdure.process p SET share = ' place'
    FROM (SELECT l.id FROM unnest(begun) AS u(id) CROSS JOIN LATERAL (
        SELECT p.id FROM perdure.process p
        WHERE p.id = u.id AND p.due_at IS NOT NULL AND p.share IS DISTINCT FROM ' place'
        FOR NO KEY UPDATE SKIP LOCKED) AS l) AS l
    WHERE p.id = l.id;
END
$$;

-- How many more a rate lets start now, and when the first of those counted is counted no more; both null without a rate.
CREATE OR REPLACE FUNCTION perdure.kind_pace(q perdure.queue, t bigint, OUT pace bigint, OUT free_at bigint)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF q.rate IS NOT NULL THEN
        SELECT greatest(q.rate - coalesce(sum((e ->> 1)::bigint), 0), 0), min((e ->> 0)::bigint) + q.per INTO pace, free_at
        FROM jsonb_array_elements(coalesce(nullif(q.turn, ''), '[]')::jsonb) AS e WHERE (e ->> 0)::bigint > t - q.per;
    END IF;
END
$$;

-- Keep what a rate counts: so many were admitted now. Above 1,000 in a period they are counted in parts of the period.
CREATE OR REPLACE FUNCTION perdure.keep_starts(q perdure.queue, number bigint, t bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    part bigint := CASE WHEN q.rate <= 1000 THEN 1 ELSE greatest(q.per / 1000, 1) END;
    here bigint := ceil(t::numeric / part)::bigint * part;
BEGIN
    UPDATE perdure.queue k SET turn = (
        SELECT jsonb_agg(jsonb_build_array(f.at, f.number) ORDER BY f.at)::text
        FROM (SELECT s.at, sum(s.number)::bigint AS number
              FROM (SELECT (e ->> 0)::bigint AS at, (e ->> 1)::bigint AS number
                    FROM jsonb_array_elements(coalesce(nullif(q.turn, ''), '[]')::jsonb) AS e
                    UNION ALL SELECT here, number) AS s
              WHERE s.at > t - q.per GROUP BY s.at) AS f)
    WHERE k.name = q.name AND q.rate IS NOT NULL;
END
$$;

-- Admit as many processes of a kind as there is room for, at most so many; the answer are their ids, locked and marked, and
-- when to look again if some wait on. The row of the kind is locked first, so that no two claims count at once; what
-- can be known without the lock is checked before it: a claim in vain writes nothing. In the first minute after the limits
-- were set, what a claim has taken that did not see them is counted too.
CREATE OR REPLACE FUNCTION perdure.admit(
    wanted text, codes text[], most bigint, alone boolean, only_id uuid, t timestamptz, OUT ids uuid[], OUT next_t timestamptz
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    q     perdure.queue;
    now   bigint := perdure.micros(t);
    slots bigint;
    rate  record;
    room  bigint;
    found uuid[];
BEGIN
    ids := '{}';
    FOR locking IN 0 .. 1 LOOP
        IF locking = 0 THEN
            SELECT k.* INTO q FROM perdure.queue k WHERE k.name = ' kind ' || wanted;
        ELSE
            SELECT k.* INTO q FROM perdure.queue k WHERE k.name = ' kind ' || wanted FOR NO KEY UPDATE SKIP LOCKED;
            IF q.name IS NULL THEN
                next_t := t;  -- another claim has locked the kind
                RETURN;
            END IF;
            IF t < q.changed_at + interval '1 minute' THEN
                PERFORM perdure.mark_begun(wanted, true);
            END IF;
        END IF;
        slots := CASE WHEN q.concurrency IS NOT NULL THEN greatest(q.concurrency - perdure.kind_places(wanted), 0) END;
        SELECT k.pace, k.free_at INTO rate FROM perdure.kind_pace(q, now) AS k;
        room := least(most, slots, rate.pace);
        SELECT array_agg(f.id ORDER BY f.priority, f.due_at, f.id) INTO found
        FROM (SELECT y.priority, c.due_at, c.id
              FROM unnest(codes) AS h(code)
              CROSS JOIN generate_series(0, 9) AS y(priority)
              CROSS JOIN LATERAL (
                  SELECT p.due_at, p.id FROM perdure.process p
                  WHERE p.kind = wanted AND p.code = h.code AND p.priority = y.priority AND p.due_at <= t
                    AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
                    AND p.share IS DISTINCT FROM ' place'
                  ORDER BY p.due_at, p.id LIMIT room + 1) AS c
              WHERE only_id IS NULL
              UNION ALL
              SELECT p.priority, p.due_at, p.id FROM perdure.process p
              WHERE p.id = only_id AND p.kind = wanted AND p.code = ANY (codes) AND p.status = 'running'
                AND p.owner IS NULL AND (p.deaths >= 2) = alone AND p.share IS DISTINCT FROM ' place'
              ORDER BY 1, 2, 3 LIMIT room + 1) AS f;
        IF found IS NULL THEN
            RETURN;  -- nothing waits
        END IF;
        IF room <= 0 THEN
            next_t := CASE WHEN most <= 0 THEN t WHEN slots = 0 THEN t + interval '200 milliseconds'
                           ELSE perdure.instant(rate.free_at) END;
            RETURN;
        END IF;
    END LOOP;
    SELECT coalesce(array_agg(l.id), '{}') INTO ids
    FROM (SELECT l.id FROM unnest(found[1:room]) AS u(id) CROSS JOIN LATERAL (
        SELECT p.id FROM perdure.process p
        WHERE p.id = u.id AND p.status = 'running' AND p.owner IS NULL AND p.share IS DISTINCT FROM ' place'
          AND (p.id = only_id OR (p.due_at <= t AND NOT p.reminder AND p.deaths < 2))
        FOR NO KEY UPDATE SKIP LOCKED) AS l) AS l;
    UPDATE perdure.process p SET share = ' place' WHERE p.id = ANY (ids);
    IF cardinality(ids) > 0 THEN
        PERFORM perdure.keep_starts(q, cardinality(ids), now);
    END IF;
    IF cardinality(ids) < cardinality(found) THEN
        next_t := CASE WHEN cardinality(ids) < room OR room = most THEN t WHEN slots = room THEN t + interval '200 milliseconds'
                       ELSE perdure.instant(coalesce(rate.free_at, now + q.per)) END;
    END IF;
END
$$;

-- Lock what a claim may take where hosted kinds have limits: of these what has a place, then what is admitted; of all other
-- kinds what is due. Each of them, and all others together, are asked for an equal part of what is left to be wanted; at each
-- time another one comes first. "next_t" is when to look again at the kinds with limits.
CREATE OR REPLACE FUNCTION perdure.claim_placed(
    limited text[], kinds text[], codes text[], most bigint, t timestamptz, OUT ids uuid[], OUT next_t timestamptz
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    others int[] := ARRAY(SELECT n FROM generate_subscripts(kinds, 1) AS n WHERE kinds[n] <> ALL (limited) ORDER BY n);
    parts  int := cardinality(limited) + (cardinality(others) > 0)::int;
    first  int := perdure.first_place(perdure.micros(t), parts, 889516852);
    i      int;
    mine   text[];
    part   bigint;
    placed uuid[];
    fresh  record;
BEGIN
    ids := '{}';
    FOR at IN 0 .. parts - 1 LOOP
        i := (first + at) % parts + 1;
        part := (most - cardinality(ids) + parts - at - 1) / (parts - at);
        IF i > cardinality(limited) THEN
            ids := ids || ARRAY(
                SELECT l.id FROM perdure.claim_due(
                    ARRAY(SELECT kinds[o.n] FROM unnest(others) WITH ORDINALITY AS o(n, place) ORDER BY place),
                    ARRAY(SELECT codes[o.n] FROM unnest(others) WITH ORDINALITY AS o(n, place) ORDER BY place),
                    part::int, t) AS l(id));
            CONTINUE;
        END IF;
        mine := ARRAY(SELECT codes[n] FROM generate_subscripts(kinds, 1) AS n WHERE kinds[n] = limited[i]);
        SELECT coalesce(array_agg(c.id), '{}') INTO placed
        FROM (SELECT p.id FROM perdure.process p
              WHERE p.kind = limited[i] AND p.code = ANY (mine) AND p.share = ' place' AND p.due_at <= t
                AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
              ORDER BY p.priority, p.due_at, p.id LIMIT part FOR NO KEY UPDATE SKIP LOCKED) AS c;
        SELECT a.ids, a.next_t INTO fresh
        FROM perdure.admit(limited[i], mine, part - cardinality(placed), false, NULL, t) AS a;
        ids := ids || placed || fresh.ids;
        next_t := least(next_t, fresh.next_t, CASE WHEN cardinality(placed) = part THEN t END);
    END LOOP;
    next_t := least(next_t, (
        SELECT min(c.due_at)
        FROM unnest(kinds, codes) AS h(kind, code)
        CROSS JOIN generate_series(0, 9) AS y(priority)
        CROSS JOIN LATERAL (
            SELECT p.due_at FROM perdure.process p
            WHERE p.kind = h.kind AND p.code = h.code AND p.priority = y.priority AND p.due_at > t
              AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
            ORDER BY p.due_at LIMIT 1) AS c
        WHERE h.kind = ANY (limited)));
END
$$;
