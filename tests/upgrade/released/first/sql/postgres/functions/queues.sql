-- Write queues, each only if its version is the next one, and read all there are. What claims keep in the row (next_at
-- and turn) stays, but no debt is longer than one period of the rate.
CREATE OR REPLACE FUNCTION perdure.queues(changes perdure.queue_in[]) RETURNS SETOF perdure.queue_out
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
BEGIN
    IF cardinality(changes) > 0 THEN
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
            PERFORM pg_notify('perdure_due', '');
        END IF;
    END IF;
    RETURN QUERY SELECT o.* FROM perdure.queue_out o ORDER BY o.name;
END
$$;
