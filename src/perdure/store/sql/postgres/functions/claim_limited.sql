-- Lock the tasks that a claim may take of one queue that has limits; see kernel/queue.py, which says the same in Python.
-- The row of the queue is locked first, so that no two claims count what runs at once; the count is read in a later
-- statement (rule 3), and a claim that finds the row locked goes on without this queue and comes again soon. Whatever
-- needs no lock to be known (blocked, full, nothing due) is looked at before it: a poll in vain writes nothing.
-- A lapsed task keeps its place: whoever takes it over takes the place over, and only pays the rate. "suspects" says that
-- some are due; it is null if the queue has no place for them, which workers of the release before take for false.
CREATE OR REPLACE FUNCTION perdure.claim_limited(
    wanted text, codes text[], most int, alone boolean, only_id uuid, t timestamptz,
    OUT taken uuid[], OUT owned uuid[], OUT next_t timestamptz, OUT suspects boolean
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    queued  text := '@' || wanted;
    q       perdure.queue;
    lapsed  uuid[];
    paid    bigint;
    slots   bigint;
    pace    bigint;
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
                next_t := t;  -- somebody else claims of it
                RETURN;
            END IF;
        END IF;
        IF q.blocked_at IS NOT NULL THEN
            RETURN;
        END IF;
        SELECT array_agg(l.id ORDER BY l.n), array_agg(l.owner ORDER BY l.n), coalesce(sum(l.weight), 0)
        INTO lapsed, owned, paid
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
        owned := coalesce(owned, '{}');
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
            SELECT * INTO chosen FROM perdure.queue_choice(
                q, queued, codes, CASE WHEN alone AND cardinality(owned) > 0 THEN 0 ELSE most - cardinality(owned) END,
                least(slots, pace), alone, only_id, t);
            EXIT WHEN NOT lost;
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
    taken := coalesce(lapsed, '{}') || coalesce(free, '{}');
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
        RETURN;  -- it is full: who ends a task tells
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
