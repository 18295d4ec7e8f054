-- A sign of life: count it, raise the clock's high-water mark, prolong the leases asked for (rules 6, 11, 15).
-- A row that somebody holds at this moment is passed by: its lease is prolonged by the next beat, it is not lost.
CREATE OR REPLACE FUNCTION perdure.beat(
    worker uuid, lease bigint, silence bigint, r_process uuid[], r_token int[], r_progress bytea[],
    OUT now bigint, OUT alive boolean, OUT lost uuid[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
BEGIN
    SELECT k.t INTO t FROM perdure.present k;
    now := perdure.micros(t);
    UPDATE perdure.worker w SET beats = w.beats + 1, due_at = t + silence * interval '1 microsecond'
    WHERE w.id = worker AND w.ended_at IS NULL;
    alive := FOUND;
    UPDATE perdure.clock c SET high_water = t  -- passed by if another beat raises it just now
    WHERE c.one AND c.high_water < t AND EXISTS (SELECT FROM perdure.clock k WHERE k.one FOR NO KEY UPDATE SKIP LOCKED);
    IF NOT alive OR r_process IS NULL THEN
        RETURN;
    END IF;
    WITH free AS MATERIALIZED (
        SELECT l.place, u.progress
        FROM (SELECT * FROM unnest(r_process, r_token, r_progress) AS o(id, token, progress) ORDER BY o.id) AS u
        CROSS JOIN LATERAL (
            SELECT p.ctid AS place FROM perdure.process p
            WHERE p.id = u.id AND p.owner IS NOT DISTINCT FROM worker AND p.token = u.token
            FOR NO KEY UPDATE SKIP LOCKED) AS l
    )
    UPDATE perdure.process p SET due_at = greatest(p.due_at, t + lease * interval '1 microsecond'),
        progress = coalesce(f.progress, p.progress)
    FROM free f WHERE p.ctid = f.place;  -- a row changed since the statement's snapshot waits for the next beat
    SELECT array_agg(u.id ORDER BY u.n) INTO lost
    FROM unnest(r_process, r_token) WITH ORDINALITY AS u(id, token, n)
    LEFT JOIN LATERAL (
        SELECT p.id, p.owner, p.token FROM perdure.process p WHERE p.id = u.id LIMIT 1) AS p ON true
    WHERE p.id IS NULL OR p.owner IS DISTINCT FROM worker OR p.token <> u.token;
END
$$;
