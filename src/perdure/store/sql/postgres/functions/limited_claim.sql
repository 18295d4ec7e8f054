-- Claims of tasks whose queue has limits.

-- Lock the tasks that a claim may take of one queue that has limits; see kernel/queue.py, which says the same in Python.
-- The row of the queue is locked first, so that no two claims count what runs at once; the count is read in a later
-- statement (rule 3), and a claim that finds the row locked goes on without this queue and comes again soon. What can be
-- known without the lock (blocked, full, nothing due) is checked before it: a poll in vain writes nothing.
-- A lapsed task keeps its place: the worker that takes it over gets the place too, and pays only the rate. "suspects" says
-- that some are due; it is null if the queue has no room for them, which workers of the release before take for false.
-- No more are taken than one answer holds that has "given" already (perdure.within_bytes); the next claim takes the rest.
CREATE OR REPLACE FUNCTION perdure.claim_limited_within(
    wanted text, codes text[], most int, alone boolean, only_id uuid, t timestamptz, given uuid[],
    OUT taken uuid[], OUT owned uuid[], OUT next_t timestamptz, OUT suspects boolean
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    queued  text := '@' || wanted;
    q       perdure.queue;
    lapsed  uuid[];
    weights int[];
    paid    bigint;
    slots   bigint;
    pace    bigint;
    part    int;
    chosen  record;
    free    uuid[];
    more    boolean;
    lost    boolean;
    idle    boolean;
BEGIN
    taken := '{}';
    owned := '{}';
    suspects := false;
    FOR locking IN 0 .. 1 LOOP
        IF locking = 0 THEN
            SELECT k.* INTO q FROM perdure.queue k WHERE k.name = wanted;
        ELSE
            SELECT k.* INTO q FROM perdure.queue k WHERE k.name = wanted FOR NO KEY UPDATE SKIP LOCKED;
            IF q.name IS NULL THEN
                next_t := t;  -- another claim has locked the queue
                RETURN;
            END IF;
        END IF;
        IF q.blocked_at IS NOT NULL THEN
            RETURN;
        END IF;
        SELECT coalesce(array_agg(l.id ORDER BY l.n), '{}'), array_agg(l.owner ORDER BY l.n), array_agg(l.weight ORDER BY l.n)
        INTO lapsed, owned, weights
        FROM (SELECT d.*, row_number() OVER (PARTITION BY alone AND d.mark <> d.first ORDER BY d.n) AS place,
                     least(coalesce(d.cost, 1), q.concurrency, q.share_concurrency, q.rate) AS weight
              FROM (SELECT c.id, c.owner, c.cost, c.alone_deaths AS mark, row_number() OVER w AS n,
                           first_value(c.alone_deaths) OVER w AS first
                    FROM perdure.owners() AS o(owner)
                    CROSS JOIN LATERAL (
                        SELECT p.id, p.owner, p.due_at, p.cost, p.alone_deaths FROM perdure.process p
                        WHERE p.owner = o.owner AND p.due_at <= t AND p.status = 'running' AND (p.deaths >= 2) = alone
                          AND p.kind = queued AND p.code = ANY (codes) AND (only_id IS NULL OR p.id = only_id)
                          AND NOT perdure.recovery_paused()
                        ORDER BY p.due_at, p.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED) AS c
                    WHERE locking = 1
                    WINDOW w AS (ORDER BY c.due_at, c.id)) AS d
              WHERE d.n <= most) AS l
        WHERE NOT alone OR (l.mark = l.first AND l.place <= greatest(1, -l.first));
        part := perdure.within_bytes(given || lapsed) - cardinality(given);
        next_t := CASE WHEN part < cardinality(lapsed) THEN t END;  -- some of them are left, which keep their places
        lapsed := lapsed[:part];
        owned := coalesce(owned[:part], '{}');
        paid := (SELECT coalesce(sum(w), 0) FROM unnest(weights[:part]) AS w);
        slots := q.concurrency - (
            SELECT coalesce(sum(least(coalesce(p.cost, 1), q.concurrency, q.share_concurrency, q.rate)), 0)
            FROM perdure.process p WHERE p.kind = queued AND p.kind < 'A' AND p.kind >= '@' AND p.owner IS NOT NULL);
        IF q.rate IS NOT NULL THEN
            q.next_at := greatest(q.next_at, t) + ceil(paid::numeric * q.per / q.rate) * interval '1 microsecond';
            pace := floor(greatest(q.per - (extract(epoch FROM q.next_at - t) * 1000000)::bigint, 0)::numeric * q.rate / q.per);
        END IF;
        idle := only_id IS NULL AND NOT EXISTS (
            SELECT FROM unnest(codes) AS h(code)
            CROSS JOIN generate_series(0, 9) AS y(priority)
            CROSS JOIN LATERAL (
                SELECT FROM perdure.process p
                WHERE p.kind = queued AND p.code = h.code AND p.priority = y.priority AND p.due_at <= t
                  AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2 AND NOT alone LIMIT 1) AS c)
            AND NOT EXISTS (
            SELECT FROM unnest(codes) AS h(code)
            CROSS JOIN generate_series(0, 9) AS y(priority)
            CROSS JOIN LATERAL (
                SELECT FROM perdure.process p
                WHERE p.kind = queued AND p.code = h.code AND p.priority = y.priority AND p.due_at <= t
                  AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths >= 2 AND alone LIMIT 1) AS c);
        lost := EXISTS (
            SELECT FROM perdure.owners() AS o(owner) CROSS JOIN LATERAL (
                SELECT FROM perdure.process p
                WHERE p.owner = o.owner AND p.due_at <= t AND p.kind = queued AND NOT perdure.recovery_paused()
                LIMIT 1) AS l);
        IF locking = 1 OR idle OR least(slots, pace) <= 0 THEN
            part := CASE WHEN next_t = t OR (alone AND cardinality(owned) > 0) THEN 0 ELSE most - cardinality(owned) END;
            LOOP
                SELECT * INTO chosen FROM perdure.queue_choice(q, queued, codes, part, least(slots, pace), alone, only_id, t);
                EXIT WHEN chosen.ids IS NULL;
                part := perdure.within_bytes(given || lapsed || chosen.ids) - cardinality(given) - cardinality(lapsed);
                EXIT WHEN part >= cardinality(chosen.ids);
            END LOOP;
            -- What came after the look without the lock is chosen again under it.
            EXIT WHEN NOT lost AND (locking = 1 OR (chosen.ids IS NULL AND chosen.turn = q.turn));
        END IF;
    END LOOP;
    SELECT array_agg(l.id ORDER BY l.n), coalesce(sum(l.weight), 0) INTO free, paid
    FROM (SELECT u.n, u.weight, p.id
          FROM unnest(chosen.ids, chosen.weights) WITH ORDINALITY AS u(id, weight, n)
          CROSS JOIN LATERAL (
              SELECT p.id FROM perdure.process p
              WHERE p.id = u.id AND p.status = 'running' AND p.owner IS NULL AND (p.deaths >= 2) = alone
                AND (p.id = only_id OR (p.due_at <= t AND NOT p.reminder))
              FOR NO KEY UPDATE SKIP LOCKED) AS p) AS l;
    taken := lapsed || coalesce(free, '{}');
    owned := owned || array_fill(NULL::uuid, ARRAY[coalesce(cardinality(free), 0)]);
    slots := slots - paid;
    more := chosen.more OR coalesce(cardinality(free), 0) < coalesce(cardinality(chosen.ids), 0);
    IF q.rate IS NOT NULL THEN
        q.next_at := q.next_at + ceil(paid::numeric * q.per / q.rate) * interval '1 microsecond';
    END IF;
    IF (q.rate IS NOT NULL AND cardinality(taken) > 0) OR chosen.turn <> q.turn THEN
        UPDATE perdure.queue k SET next_at = q.next_at, turn = chosen.turn WHERE k.name = wanted;
    END IF;
    suspects := EXISTS (
        SELECT FROM perdure.process p
        WHERE p.kind = queued AND p.code = ANY (codes) AND p.priority BETWEEN 0 AND 9 AND p.due_at <= t
          AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths >= 2 AND p.id <> ALL (taken));
    IF slots < greatest(coalesce(chosen.refused, 1), 1) THEN
        suspects := nullif(suspects, true);
        RETURN;  -- the queue is full: the end of a task notifies the workers
    END IF;
    IF more THEN
        next_t := t;
        RETURN;
    END IF;
    SELECT min(c.due_at) INTO next_t
    FROM unnest(codes) AS h(code)
    CROSS JOIN generate_series(0, 9) AS y(priority)
    CROSS JOIN LATERAL (
        SELECT p.due_at FROM perdure.process p
        WHERE p.kind = queued AND p.code = h.code AND p.priority = y.priority AND p.due_at > t
          AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
        ORDER BY p.due_at LIMIT 1) AS c;
    IF chosen.refused IS NOT NULL THEN
        next_t := least(next_t, q.next_at + (ceil(chosen.refused::numeric * q.per / q.rate) - q.per) * interval '1 microsecond');
    END IF;
END
$$;

-- The same for an answer that has nothing yet.
CREATE OR REPLACE FUNCTION perdure.claim_limited(
    wanted text, codes text[], most int, alone boolean, only_id uuid, t timestamptz,
    OUT taken uuid[], OUT owned uuid[], OUT next_t timestamptz, OUT suspects boolean
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT c.taken, c.owned, c.next_t, c.suspects INTO taken, owned, next_t, suspects
    FROM perdure.claim_limited_within(wanted, codes, most, alone, only_id, t, '{}') AS c;
END
$$;

-- A claim that may take tasks. Queues with a row, each under the lock of that row, and everything else, claimed as ever, are
-- asked one after the other, each for an equal part of what is left to be wanted; at each time another one comes first. Where
-- no hosted queue has a row, this is perdure.claim and one look at a tiny table.
CREATE OR REPLACE FUNCTION perdure.claim_queued(
    worker uuid, kinds text[], codes text[], most int, lease bigint, alone boolean, only_id uuid
) RETURNS TABLE (
    now bigint, next_due_at bigint, alive boolean, suspects boolean, was_owned_by uuid, taken perdure.process_out
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    limited text[] := ARRAY(SELECT q.name FROM perdure.queue q WHERE '@' || q.name = ANY (kinds) ORDER BY q.name);
    parts   int := cardinality(limited);
    t       timestamptz;
    found   record;
    chosen  uuid[] := '{}';
    owned   uuid[] := '{}';
    next_t  timestamptz;
    danger  boolean := false;
    others  int[];
    first   int;
    i       int;
    part    int;
    rows    int;
BEGIN
    SELECT k.t INTO t FROM perdure.present k;
    IF parts > 0 AND EXISTS (SELECT FROM perdure.worker w WHERE w.id = worker AND w.ended_at IS NULL) THEN
        others := ARRAY(SELECT n FROM generate_subscripts(kinds, 1) AS n WHERE substr(kinds[n], 2) <> ALL (limited)
                        OR NOT starts_with(kinds[n], '@') ORDER BY n);
        parts := parts + (cardinality(others) > 0)::int;
        first := perdure.first_place(perdure.micros(t), parts, 1327217885);
        FOR at IN 0 .. parts - 1 LOOP
            i := (first + at) % parts + 1;
            part := (most + parts - at - 1) / (parts - at);
            IF i <= cardinality(limited) THEN
                SELECT c.* INTO found
                FROM perdure.claim_limited_within(
                    limited[i], ARRAY(SELECT codes[n] FROM generate_subscripts(kinds, 1) AS n WHERE kinds[n] = '@' || limited[i]),
                    part, alone, only_id, t, chosen) AS c;
                chosen := chosen || found.taken;
                owned := owned || found.owned;
                next_t := least(next_t, found.next_t);
                danger := danger OR found.suspects;
                rows := cardinality(found.taken);
            ELSE
                -- The rows taken, and one more with what else the answer says: so the number of rows tells how many were taken.
                RETURN QUERY
                WITH answer AS MATERIALIZED (
                    SELECT c.* FROM perdure.claim(
                        worker, ARRAY(SELECT kinds[o.n] FROM unnest(others) WITH ORDINALITY AS o(n, place) ORDER BY place),
                        ARRAY(SELECT codes[o.n] FROM unnest(others) WITH ORDINALITY AS o(n, place) ORDER BY place),
                        part, lease, alone, only_id) AS c
                )
                SELECT a.* FROM answer a WHERE (a.taken).id IS NOT NULL
                UNION ALL
                (SELECT a.now, a.next_due_at, a.alive, a.suspects, NULL, NULL FROM answer a LIMIT 1);
                GET DIAGNOSTICS rows = ROW_COUNT;
                rows := rows - 1;
            END IF;
            most := CASE WHEN alone AND rows > 0 THEN 0 ELSE most - rows END;
        END LOOP;
        UPDATE perdure.process p SET owner = worker, token = p.token % 2147483647 + 1, due_at = t + lease * interval '1 microsecond',
            reminder = false, opened_at = coalesce(p.opened_at, t), changed_at = t
        WHERE p.id = ANY (chosen);
        RETURN QUERY
        SELECT perdure.micros(t), perdure.micros(next_t), true, danger, owned[u.n], v.o
        FROM (SELECT) AS always
        LEFT JOIN (unnest(chosen) WITH ORDINALITY AS u(id, n) CROSS JOIN LATERAL (
            SELECT o FROM perdure.process_out o WHERE o.id = u.id LIMIT 1) AS v) ON true
        ORDER BY u.n;
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM perdure.claim(worker, kinds, codes, most, lease, alone, only_id);
END
$$;
