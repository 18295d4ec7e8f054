-- Signs of life of workers.

-- A sign of life: count it, raise the clock's high-water mark, prolong the leases asked for (rules 6, 11, 15). If the
-- server's clock was set back, time goes on from the mark at the clock's pace, by the lead (see kernel/clock.py). The
-- answer says how often the worker has beaten and on which line the database is: so the worker can tell whether the
-- database was set back. ``told`` are the worker's figures, if it tells them this time. A row that is locked at this
-- moment is skipped, and so is one that has just changed: its lease stays as it is until a later beat, and the answer
-- names it.
CREATE OR REPLACE FUNCTION perdure.beat_telling_skipped(
    worker uuid, lease bigint, silence bigint, r_process uuid[], r_token int[], r_progress bytea[], told bytea,
    OUT now bigint, OUT alive boolean, OUT lost uuid[], OUT beats bigint, OUT line uuid, OUT lead bigint,
    OUT skipped uuid[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '2s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    m timestamptz;
    ahead interval;
    missed bigint[];
BEGIN
    SELECT k.m, greatest(k.m + k.lead, k.high_water), k.line, k.lead INTO m, t, line, ahead
    FROM (SELECT coalesce(c.fake, clock_timestamp()) AS m, c.* FROM perdure.clock c WHERE c.one OFFSET 0) AS k;
    now := perdure.micros(t);
    UPDATE perdure.worker w SET beats = w.beats + 1, hang = NULL, due_at = t + silence * interval '1 microsecond',
        figures = coalesce(told, w.figures)
    WHERE w.id = worker AND w.ended_at IS NULL RETURNING w.beats INTO beats;
    alive := FOUND;
    IF NOT alive THEN
        SELECT w.beats INTO beats FROM perdure.worker w WHERE w.id = worker;
    END IF;
    UPDATE perdure.clock c SET high_water = greatest(c.high_water, t), slewed_at = m,
        lead = k.lead, lead_since = CASE WHEN k.lead > interval '0' THEN coalesce(c.lead_since, t) END,
        mending = c.mending AND k.lead > interval '0'
    FROM (
        SELECT CASE
            WHEN o.high_water > m + o.lead + interval '1 second' THEN o.lead + (o.high_water - (m + o.lead))
            ELSE greatest(o.lead - least(greatest(m - coalesce(o.slewed_at, m), interval '0')
                / CASE WHEN o.mending THEN 2 ELSE 100 END, interval '0.5 seconds'), interval '0') END AS lead
        FROM perdure.clock o WHERE o.one FOR NO KEY UPDATE SKIP LOCKED  -- skipped if another beat raises it just now
    ) AS k
    WHERE c.one RETURNING c.lead INTO ahead;
    lead := (extract(epoch FROM ahead) * 1000000)::bigint;
    IF NOT alive OR r_process IS NULL THEN
        RETURN;
    END IF;
    WITH free AS MATERIALIZED (
        SELECT l.place, u.progress, u.n
        FROM (SELECT * FROM unnest(r_process, r_token, r_progress) WITH ORDINALITY AS o(id, token, progress, n)
              WHERE o.token = abs(o.token) ORDER BY o.id) AS u
        CROSS JOIN LATERAL (
            SELECT p.ctid AS place FROM perdure.process p
            WHERE p.id = u.id AND p.owner IS NOT DISTINCT FROM worker AND p.token = u.token
            FOR NO KEY UPDATE SKIP LOCKED) AS l
    ), renewed AS (
        UPDATE perdure.process p SET due_at = greatest(p.due_at, t + lease * interval '1 microsecond'),
            progress = coalesce(f.progress, p.progress)
        FROM free f WHERE p.ctid = f.place  -- a row changed since the statement's snapshot is passed by
        RETURNING f.n
    )
    SELECT array_agg(m.n) INTO missed
    FROM (SELECT s.n::bigint AS n FROM generate_subscripts(r_process, 1) AS s(n) EXCEPT SELECT r.n FROM renewed r) AS m;
    SELECT array_agg(u.id ORDER BY u.n) FILTER (WHERE NOT u.ours), array_agg(u.id ORDER BY u.n) FILTER (WHERE u.ours)
    INTO lost, skipped
    FROM (
        SELECT m.n, r_process[m.n] AS id, p.id IS NOT NULL AND p.owner IS NOT DISTINCT FROM worker
            AND p.token = r_token[m.n] AS ours
        FROM unnest(missed) AS m(n)
        LEFT JOIN LATERAL (
            SELECT p.id, p.owner, p.token FROM perdure.process p WHERE p.id = r_process[m.n] LIMIT 1) AS p ON true
    ) AS u;
END
$$;

-- A sign of life of a worker that asks for no skipped rows: see perdure.beat_telling_skipped.
CREATE OR REPLACE FUNCTION perdure.beat_with_figures(
    worker uuid, lease bigint, silence bigint, r_process uuid[], r_token int[], r_progress bytea[], told bytea,
    OUT now bigint, OUT alive boolean, OUT lost uuid[], OUT beats bigint, OUT line uuid, OUT lead bigint
) LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT b.now, b.alive, b.lost, b.beats, b.line, b.lead
    FROM perdure.beat_telling_skipped($1, $2, $3, $4, $5, $6, $7) AS b
$$;

-- A sign of life of a worker that tells no figures: see perdure.beat_with_figures.
CREATE OR REPLACE FUNCTION perdure.heartbeat(
    worker uuid, lease bigint, silence bigint, r_process uuid[], r_token int[], r_progress bytea[],
    OUT now bigint, OUT alive boolean, OUT lost uuid[], OUT beats bigint, OUT line uuid, OUT lead bigint
) LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM perdure.beat_with_figures($1, $2, $3, $4, $5, $6, NULL)
$$;

-- A sign of life as workers of the first schema ask for it: see perdure.heartbeat.
CREATE OR REPLACE FUNCTION perdure.beat(
    worker uuid, lease bigint, silence bigint, r_process uuid[], r_token int[], r_progress bytea[],
    OUT now bigint, OUT alive boolean, OUT lost uuid[]
) LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT h.now, h.alive, h.lost FROM perdure.heartbeat($1, $2, $3, $4, $5, $6) AS h
$$;

-- Write down what blocks a worker; the answer is the store's time, or null if there is no such worker.
CREATE OR REPLACE FUNCTION perdure.keep_hang(wanted uuid, blocker bytea) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
    UPDATE perdure.worker w SET hang = blocker WHERE w.id = wanted;
    IF FOUND THEN
        RETURN perdure.micros(perdure.now());
    END IF;
    RETURN NULL;
END
$$;
