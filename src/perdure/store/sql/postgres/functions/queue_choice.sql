-- Which due tasks of a queue with limits may begin.

-- How much of a queue's limits the owned tasks of one share take; null is a share too.
CREATE OR REPLACE FUNCTION perdure.share_load(q perdure.queue, queued text, wanted text) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF wanted IS NULL THEN
        RETURN (SELECT coalesce(sum(least(coalesce(p.cost, 1), q.concurrency, q.share_concurrency, q.rate)), 0)
                FROM perdure.process p
                WHERE p.kind = queued AND p.kind < 'A' AND p.kind >= '@' AND p.owner IS NOT NULL AND p.share IS NULL);
    END IF;
    RETURN (SELECT coalesce(sum(least(coalesce(p.cost, 1), q.concurrency, q.share_concurrency, q.rate)), 0)
            FROM perdure.process p
            WHERE p.kind = queued AND p.kind < 'A' AND p.kind >= '@' AND p.owner IS NOT NULL AND p.share = wanted);
END
$$;

-- Choose, without locks, what may be taken of a queue's due tasks, by priority. Within one priority the shares take turns:
-- first the share of which least runs, then the next one after the share that had the last turn (tasks without a share come
-- after the last share). Tasks are chosen as far as there is room, and no share goes beyond its own limit.
-- A look reads at most 50 shares, and of each only as many tasks as could be taken: a skip scan over an index, one seek
-- for a share, however many tasks wait ("deaths + 0" keeps the planner from an index by which it would read them all).
-- "refused" is the weight of the first task for which there was no room, "more" says that the look ended before the
-- tasks did, "turn" is the share that had the last turn (or that ended a look in vain which did not see all shares). Where the
-- turn would go back to the first share before the last one was seen, the next look goes on behind the last one of this look.
CREATE OR REPLACE FUNCTION perdure.queue_choice(
    q perdure.queue, queued text, codes text[], most int, room bigint, alone boolean, only_id uuid, t timestamptz,
    OUT ids uuid[], OUT weights bigint[], OUT refused bigint, OUT more boolean, OUT turn text
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    reach int := least(most, room);
BEGIN
    more := false;
    turn := q.turn;
    IF most <= 0 THEN
        more := true;
        RETURN;
    END IF;
    IF room <= 0 THEN
        refused := 1;
        RETURN;
    END IF;
    WITH RECURSIVE level AS MATERIALIZED (
        SELECT h.code, y.priority
        FROM unnest(codes) AS h(code)
        CROSS JOIN generate_series(0, 9) AS y(priority)
        CROSS JOIN LATERAL (
            SELECT FROM perdure.process p
            WHERE p.kind = queued AND p.code = h.code AND p.priority = y.priority AND p.due_at <= t
              AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2 LIMIT 1) AS c
        WHERE NOT alone AND only_id IS NULL
    ), later AS (
        SELECT l.code, l.priority, s.share, 1 AS n
        FROM level l CROSS JOIN LATERAL (
            SELECT p.share FROM perdure.process p
            WHERE p.kind = queued AND p.kind < 'A' AND p.kind >= '@' AND p.code = l.code AND p.priority = l.priority
              AND p.share > q.turn AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths + 0 < 2
            ORDER BY p.share LIMIT 1) AS s
        UNION ALL
        SELECT l.code, l.priority, s.share, l.n + 1
        FROM later l CROSS JOIN LATERAL (
            SELECT p.share FROM perdure.process p
            WHERE p.kind = queued AND p.kind < 'A' AND p.kind >= '@' AND p.code = l.code AND p.priority = l.priority
              AND p.share > l.share AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths + 0 < 2
            ORDER BY p.share LIMIT 1) AS s
        WHERE l.n < 51
    ), earlier AS (
        SELECT l.code, l.priority, s.share, 1 AS n
        FROM level l CROSS JOIN LATERAL (
            SELECT p.share FROM perdure.process p
            WHERE p.kind = queued AND p.kind < 'A' AND p.kind >= '@' AND p.code = l.code AND p.priority = l.priority
              AND p.share > '' AND p.share <= q.turn
              AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths + 0 < 2
            ORDER BY p.share LIMIT 1) AS s
        UNION ALL
        SELECT l.code, l.priority, s.share, l.n + 1
        FROM earlier l CROSS JOIN LATERAL (
            SELECT p.share FROM perdure.process p
            WHERE p.kind = queued AND p.kind < 'A' AND p.kind >= '@' AND p.code = l.code AND p.priority = l.priority
              AND p.share > l.share AND p.share <= q.turn
              AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths + 0 < 2
            ORDER BY p.share LIMIT 1) AS s
        WHERE l.n < 51
    ), found AS MATERIALIZED (
        SELECT a.code, a.priority, a.share, a.part,
               row_number() OVER (PARTITION BY a.code, a.priority ORDER BY a.part, a.share) AS place,
               least(count(*) OVER (PARTITION BY a.code, a.priority), 50) + 1 AS shares
        FROM (SELECT l.code, l.priority, l.share, 1 AS part FROM later l
              UNION ALL SELECT e.code, e.priority, e.share, 2 FROM earlier e) AS a
    ), seen AS MATERIALIZED (
        SELECT f.*, perdure.share_load(q, queued, f.share) AS running FROM found f WHERE f.place <= 50
    ), candidate AS MATERIALIZED (
        SELECT c.id, s.priority, s.share, s.running, c.due_at, c.cost, c.j, (2 * reach + s.shares - 1) / s.shares AS k
        FROM seen s CROSS JOIN LATERAL (
            SELECT w.*, row_number() OVER (ORDER BY w.due_at, w.id) AS j FROM (
                SELECT p.id, p.due_at, p.cost FROM perdure.process p
                WHERE p.kind = queued AND p.kind < 'A' AND p.kind >= '@' AND p.code = s.code AND p.priority = s.priority
                  AND p.share = s.share AND p.due_at <= t
                  AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths + 0 < 2
                ORDER BY p.due_at, p.id LIMIT least(reach, (2 * reach + s.shares - 1) / s.shares)) AS w) AS c
        UNION ALL
        SELECT c.id, l.priority, NULL, n.running, c.due_at, c.cost, c.j, (2 * reach + n.shares - 1) / n.shares
        FROM level l
        CROSS JOIN LATERAL (
            SELECT count(*) + 1 AS shares, perdure.share_load(q, queued, NULL) AS running
            FROM seen s WHERE s.code = l.code AND s.priority = l.priority) AS n
        CROSS JOIN LATERAL (
            SELECT w.*, row_number() OVER (ORDER BY w.due_at, w.id) AS j FROM (
                SELECT p.id, p.due_at, p.cost FROM perdure.process p
                WHERE p.kind = queued AND p.kind < 'A' AND p.kind >= '@' AND p.code = l.code AND p.priority = l.priority
                  AND p.share IS NULL AND p.due_at <= t
                  AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths + 0 < 2
                ORDER BY p.due_at, p.id LIMIT least(reach, (2 * reach + n.shares - 1) / n.shares)) AS w) AS c
        UNION ALL
        SELECT g.id, g.priority, g.share, perdure.share_load(q, queued, g.share), g.due_at, g.cost, g.j, reach
        FROM (SELECT s.*, row_number() OVER (PARTITION BY s.mark ORDER BY s.n) AS place
              FROM (SELECT c.id, y.priority, c.share, c.due_at, c.cost, c.alone_deaths AS mark,
                           row_number() OVER (PARTITION BY h.code, y.priority) AS j, row_number() OVER w AS n,
                           first_value(c.alone_deaths) OVER w AS first
                    FROM unnest(codes) AS h(code)
                    CROSS JOIN generate_series(0, 9) AS y(priority)
                    CROSS JOIN LATERAL (
                        SELECT p.id, p.due_at, p.share, p.cost, p.alone_deaths FROM perdure.process p
                        WHERE p.kind = queued AND p.code = h.code AND p.priority = y.priority AND p.due_at <= t
                          AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths >= 2
                        ORDER BY p.due_at, p.id LIMIT reach) AS c
                    WHERE alone AND only_id IS NULL
                    WINDOW w AS (ORDER BY y.priority, c.due_at, c.id)) AS s
              WHERE s.mark = s.first) AS g
        WHERE g.place <= greatest(1, -g.mark)
        UNION ALL
        SELECT p.id, p.priority, p.share, perdure.share_load(q, queued, p.share), p.due_at, p.cost, 0, 1
        FROM (SELECT p.* FROM perdure.process p WHERE p.id = only_id OFFSET 0) AS p
        WHERE p.kind = queued AND p.code = ANY (codes) AND p.status = 'running' AND p.owner IS NULL
          AND (p.deaths >= 2) = alone
    ), weighed AS (
        SELECT c.id, c.priority, c.share, c.due_at,
               CASE WHEN c.share > q.turn THEN 0 WHEN c.share IS NULL AND q.turn <> '' THEN 1 ELSE 2 END AS rank,
               c.j >= least(reach, c.k) AS cut, w.weight,
               coalesce(c.running, 0) + sum(w.weight) OVER (PARTITION BY c.share ORDER BY c.priority, c.due_at, c.id) AS reached
        FROM candidate c
        CROSS JOIN LATERAL (SELECT least(coalesce(c.cost, 1), q.concurrency, q.share_concurrency, q.rate)::bigint AS weight) AS w
    ), ordered AS (
        SELECT w.*, sum(w.weight) OVER (ORDER BY w.priority, w.reached - w.weight, w.rank, w.share, w.due_at, w.id) AS together,
               row_number() OVER (ORDER BY w.priority, w.reached - w.weight, w.rank, w.share, w.due_at, w.id) AS n
        FROM weighed w
        WHERE (w.reached <= q.share_concurrency) IS NOT FALSE
    )
    SELECT array_agg(o.id ORDER BY o.n) FILTER (WHERE o.fits AND o.n <= most),
           array_agg(o.weight ORDER BY o.n) FILTER (WHERE o.fits AND o.n <= most),
           (array_agg(o.weight ORDER BY o.n) FILTER (WHERE NOT o.fits))[1],
           coalesce(bool_or(o.fits AND (o.n > most OR o.cut)), false)
           OR EXISTS (SELECT FROM found f WHERE f.place = 51),
           coalesce((array_agg(coalesce(CASE WHEN o.rank > 0 THEN u.seen_to END, o.share, '') ORDER BY o.n DESC)
                     FILTER (WHERE o.fits AND o.n <= most AND only_id IS NULL))[1],
                    (SELECT s.share FROM seen s
                     WHERE s.place = 50 AND EXISTS (
                         SELECT FROM found f WHERE f.place = 51 AND f.code = s.code AND f.priority = s.priority)
                     ORDER BY s.priority, s.code LIMIT 1), q.turn)
    INTO ids, weights, refused, more, turn
    FROM (SELECT o.*, (o.together <= room) IS NOT FALSE AS fits FROM ordered o) AS o
    CROSS JOIN (SELECT (
        SELECT s.share FROM seen s
        WHERE s.place = 50 AND EXISTS (
            SELECT FROM found f WHERE f.place = 51 AND f.part = 1 AND f.code = s.code AND f.priority = s.priority)
        ORDER BY s.priority, s.code LIMIT 1) AS seen_to) AS u;
END
$$;
