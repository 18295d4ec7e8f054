-- How much of a queue's limits the tasks of one share take that are in somebody's hands; a null share is one too.
CREATE OR REPLACE FUNCTION perdure.share_load(q perdure.queue, queued text, wanted text) RETURNS bigint
LANGUAGE plpgsql STABLE
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
