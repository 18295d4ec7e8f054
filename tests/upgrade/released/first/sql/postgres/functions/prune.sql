-- Remove processes that ended long ago with all that belongs to them; their keys stay for a while (rule 24).
-- It runs seldom and removes much, so it is planned anew each time for the sizes of that time.
CREATE OR REPLACE FUNCTION perdure.prune(finished bigint, keys bigint, most int, OUT processes int, OUT forgotten int)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_custom_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t   timestamptz := perdure.now();
    old uuid[];
BEGIN
    SELECT array_agg(l.id) INTO old
    FROM (SELECT p.id FROM perdure.process p
          WHERE p.due_at IS NULL AND p.changed_at <= t - finished * interval '1 microsecond'
          ORDER BY p.changed_at, p.id LIMIT most FOR UPDATE SKIP LOCKED) AS l;
    INSERT INTO perdure.key_kept (kind, key, process, due_at, digest)
    SELECT p.kind, p.key, p.id, t + keys * interval '1 microsecond', sha256(p.input)
    FROM perdure.process p WHERE p.id = ANY (old) AND p.key IS NOT NULL
    ON CONFLICT (kind, key) DO UPDATE
        SET process = excluded.process, due_at = excluded.due_at, digest = excluded.digest;
    DELETE FROM perdure.message m WHERE m.process = ANY (old);
    DELETE FROM perdure.event e WHERE e.process = ANY (old);
    DELETE FROM perdure.process p WHERE p.id = ANY (old);
    processes := coalesce(cardinality(old), 0);
    -- MATERIALIZED: a nested loop would run the limit again for every key and remove more than asked for (rule 8).
    WITH over AS MATERIALIZED (
        SELECT e.kind, e.key FROM perdure.key_kept e
        WHERE e.due_at <= t ORDER BY e.due_at, e.kind, e.key LIMIT most FOR UPDATE SKIP LOCKED
    )
    DELETE FROM perdure.key_kept k USING over WHERE k.kind = over.kind AND k.key = over.key;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    DELETE FROM perdure.worker w
    WHERE w.ended_at <= t - interval '1 day' AND NOT EXISTS (SELECT FROM perdure.process p WHERE p.owner = w.id OFFSET 0);
END
$$;
