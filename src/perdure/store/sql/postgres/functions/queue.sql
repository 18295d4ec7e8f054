-- Queues and how much of them is used.

-- A queue as the client reads it: the columns in the order of the record's fields, times in microseconds.
CREATE OR REPLACE VIEW perdure.queue_out AS
SELECT q.name, q.version, q.concurrency, q.rate, q.per, q.share_concurrency, perdure.micros(q.blocked_at) AS blocked_at,
       q.blocked_by, q.blocked_why, perdure.micros(q.changed_at) AS changed_at, q.who, q.why, q.origin,
       perdure.micros(q.next_at) AS next_at, q.turn
FROM perdure.queue q;

-- Write queues, each only if its version is the next one, and read all there are. What claims keep in the row (next_at
-- and turn) stays, but no debt is longer than one period of the rate. Where a kind gets its first limits, what has begun of
-- it has its place already.
CREATE OR REPLACE FUNCTION perdure.queues(changes perdure.queue_in[]) RETURNS SETOF perdure.queue_out
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    before text[];
BEGIN
    IF cardinality(changes) > 0 THEN
        before := ARRAY(SELECT q.name FROM perdure.queue q WHERE q.concurrency IS NOT NULL OR q.rate IS NOT NULL);
        INSERT INTO perdure.queue AS q
        SELECT c.name, c.version, c.concurrency, c.rate, c.per, c.share_concurrency, perdure.instant(c.blocked_at),
               c.blocked_by, c.blocked_why, perdure.instant(c.changed_at), c.who, c.why, c.origin, perdure.instant(0), ''
        FROM unnest(changes) AS c
        WHERE c.version = 1 OR EXISTS (SELECT FROM perdure.queue k WHERE k.name = c.name)
        ORDER BY c.name
        ON CONFLICT (name) DO UPDATE SET
            version = excluded.version, concurrency = excluded.concurrency, rate = excluded.rate, per = excluded.per,
            share_concurrency = excluded.share_concurrency, blocked_at = excluded.blocked_at,
            blocked_by = excluded.blocked_by, blocked_why = excluded.blocked_why, changed_at = excluded.changed_at,
            who = excluded.who, why = excluded.why, origin = excluded.origin,
            next_at = least(q.next_at, excluded.changed_at + excluded.per * interval '1 microsecond')
        WHERE excluded.version = q.version + 1;
        IF FOUND THEN
            PERFORM perdure.mark_begun(substr(q.name, 7), false) FROM perdure.queue q
            WHERE q.name > ' kind ' AND q.name < ' kind!' AND (q.concurrency IS NOT NULL OR q.rate IS NOT NULL)
              AND q.name <> ALL (before);
            PERFORM pg_notify('perdure_due', '');
        END IF;
    END IF;
    RETURN QUERY SELECT o.* FROM perdure.queue_out o ORDER BY o.name;
END
$$;

-- The rows of the table, for a login that may see them and not change them.
CREATE OR REPLACE FUNCTION perdure.queues_seen(changes perdure.queue_in[]) RETURNS SETOF perdure.queue_out
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(changes) > 0 THEN
        RAISE insufficient_privilege USING MESSAGE = 'this login may look, and change nothing';
    END IF;
    RETURN QUERY SELECT * FROM perdure.queues('{}');
END
$$;

-- How many tasks of each queue, share and cost workers own; and of each kind with limits, under the name of its row, how
-- many processes have a place. Nobody writes these rows: the argument is always empty.
CREATE OR REPLACE FUNCTION perdure.loads(nothing int[]) RETURNS TABLE (name text, share text, cost int, tasks int)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT substr(p.kind, 2), p.share, coalesce(p.cost, 1), count(*)::int
    FROM perdure.process p
    WHERE p.kind < 'A' AND p.kind >= '@' AND p.owner IS NOT NULL
    GROUP BY p.kind, p.share, coalesce(p.cost, 1)
    UNION ALL
    SELECT q.name, NULL, 1, k.places::int
    FROM perdure.queue q CROSS JOIN LATERAL perdure.kind_places(substr(q.name, 7)) AS k(places)
    WHERE q.name > ' kind ' AND q.name < ' kind!' AND k.places > 0
    ORDER BY 1, 2 NULLS FIRST, 3;
END
$$;

-- How many unfinished processes of each kind and version no worker owns, each counted up to 1,000: a few seeks for each
-- kind and version, however many processes there are. Nobody writes these rows: the argument is always empty.
CREATE OR REPLACE FUNCTION perdure.backlogs(nothing int[]) RETURNS TABLE (kind text, code text, processes int)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE asleep AS (
        (SELECT p.kind, p.code FROM perdure.process p WHERE p.reminder ORDER BY p.kind, p.code LIMIT 1)
        UNION ALL
        SELECT n.kind, n.code FROM asleep CROSS JOIN LATERAL (
            SELECT p.kind, p.code FROM perdure.process p
            WHERE p.reminder AND (p.kind, p.code) > (asleep.kind, asleep.code)
            ORDER BY p.kind, p.code LIMIT 1) AS n
    ), pair AS (
        SELECT d.kind, d.code FROM perdure.due_pair d UNION SELECT * FROM asleep UNION
        SELECT p.kind, p.code FROM perdure.process p
        WHERE p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths >= 2
    )
    SELECT pair.kind, pair.code, count(*)::int FROM pair CROSS JOIN LATERAL (
        (SELECT FROM perdure.process p
         WHERE p.kind = pair.kind AND p.code = pair.code
           AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2 LIMIT 1000)
        UNION ALL
        (SELECT FROM perdure.process p WHERE p.kind = pair.kind AND p.code = pair.code AND p.reminder LIMIT 1000)
        UNION ALL
        (SELECT FROM perdure.process p
         WHERE p.kind = pair.kind AND p.code = pair.code
           AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths >= 2 LIMIT 1000)
        LIMIT 1000) AS one
    GROUP BY pair.kind, pair.code ORDER BY pair.kind, pair.code;
END
$$;

-- What waits in each queue, counted up to 100,000 for each version of its tasks: how many tasks no worker owns, how many
-- of them are not due yet, and the earliest time at which one of them was or will be due. The same for what is due and waits
-- for a place among the processes of its kind, under the name of the kind's row.
CREATE OR REPLACE FUNCTION perdure.queuedepths(nothing int[]) RETURNS TABLE (
    name text, waiting int, delayed int, due_at bigint
) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := perdure.now();
BEGIN
    RETURN QUERY
    SELECT substr(d.kind, 2), count(*)::int, (count(*) FILTER (WHERE one.due_at > t))::int,
           perdure.micros(min(one.due_at))
    FROM (SELECT DISTINCT p.kind, p.code FROM perdure.due_pair p WHERE p.kind < 'A' AND p.kind >= '@') AS d
    CROSS JOIN LATERAL (
        SELECT p.due_at FROM perdure.process p
        WHERE p.kind = d.kind AND p.code = d.code
          AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2 LIMIT 100000) AS one
    GROUP BY d.kind
    UNION ALL
    SELECT q.name, count(*)::int, 0, perdure.micros(min(one.due_at))
    FROM perdure.queue q
    CROSS JOIN LATERAL (
        SELECT p.due_at FROM perdure.process p
        WHERE p.kind = substr(q.name, 7) AND p.due_at <= t AND p.share IS DISTINCT FROM ' place'
          AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2 LIMIT 100000) AS one
    WHERE q.name > ' kind ' AND q.name < ' kind!'
    GROUP BY q.name ORDER BY 1;
END
$$;
