-- The incarnations of workers: their rows, their locks and their ends.

-- Register a new incarnation; enlisting it again changes nothing.
CREATE OR REPLACE FUNCTION perdure.enlist(
    worker uuid, name text, hosts bytea, silence bigint, locked boolean, OUT started_at bigint,
    OUT beats bigint, OUT due_at bigint, OUT counts boolean, OUT ended_at bigint, OUT died boolean
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := perdure.now();
BEGIN
    INSERT INTO perdure.worker (id, started_at, due_at, beats, locked, died, name, hosts)
    VALUES (worker, t, t + silence * interval '1 microsecond', 0, locked, false, name, hosts)
    ON CONFLICT (id) DO NOTHING;
    SELECT perdure.micros(w.started_at), w.beats, perdure.micros(w.due_at), w.locked, perdure.micros(w.ended_at), w.died
    INTO started_at, beats, due_at, counts, ended_at, died
    FROM perdure.worker w WHERE w.id = worker;
END
$$;

-- End an incarnation once, if it has beaten no more than so often; afterwards nothing it sends counts (rules 11, 12).
CREATE OR REPLACE FUNCTION perdure.retire(worker uuid, most_beats bigint, by_death boolean) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET lock_timeout = '5s' AS $$
#variable_conflict use_column
BEGIN
    UPDATE perdure.worker w SET ended_at = perdure.now(), due_at = NULL, died = by_death
    WHERE w.id = worker AND w.ended_at IS NULL AND (most_beats IS NULL OR w.beats <= most_beats);
    RETURN FOUND;
END
$$;

-- How often an incarnation has beaten; null if there is no such one. A session keeps its plans: one made while the table was
-- tiny, and analysed, reads it from end to end at every claim (rule 8).
CREATE OR REPLACE FUNCTION perdure.beats_of(worker uuid) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
    RETURN (SELECT w.beats FROM perdure.worker w WHERE w.id = worker);
END
$$;

-- The advisory lock of an incarnation: the last 8 bytes of its id, which are random. Inlined, and so every name in it says its
-- schema (see perdure.micros).
CREATE OR REPLACE FUNCTION perdure.worker_lock(uuid) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT ('x' OPERATOR(pg_catalog.||) pg_catalog.right(pg_catalog.replace($1::pg_catalog.text, '-', ''), 16))::bit(64)::bigint
$$;

-- These incarnations, each with a look at its lock, with what blocks it, and with the figures that it has told last. The
-- probe only looks in pg_locks and never takes what it probes (rule 12). An advisory lock on a bigint shows its upper half
-- as classid and its lower half as objid.
CREATE OR REPLACE FUNCTION perdure.workers_of(wanted uuid[]) RETURNS TABLE (
    id uuid, name text, hosts bytea, started_at bigint, beats bigint, due_at bigint, locked boolean,
    lock_free boolean, ended_at bigint, died boolean, hang bytea, figures bytea
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT l.classid::bigint << 32 | l.objid::bigint AS lock
        FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    )
    SELECT w.id, w.name, w.hosts, perdure.micros(w.started_at), w.beats, perdure.micros(w.due_at), w.locked,
           w.locked AND NOT EXISTS (SELECT FROM held WHERE held.lock = perdure.worker_lock(w.id)),
           perdure.micros(w.ended_at), w.died, w.hang, w.figures
    FROM perdure.worker w
    WHERE w.id = ANY (wanted)
    ORDER BY w.id;
END
$$;

-- The incarnations that have not ended, or all that are remembered.
CREATE OR REPLACE FUNCTION perdure.workers_with_figures(with_ended boolean) RETURNS TABLE (
    id uuid, name text, hosts bytea, started_at bigint, beats bigint, due_at bigint, locked boolean,
    lock_free boolean, ended_at bigint, died boolean, hang bytea, figures bytea
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT * FROM perdure.workers_of(ARRAY(
        SELECT a.id FROM perdure.worker a WHERE a.ended_at IS NULL
        UNION ALL  -- a plan for every answer reads none of these if they are not asked for
        SELECT e.id FROM perdure.worker e WHERE e.ended_at IS NOT NULL AND with_ended
    ));
END
$$;

-- The same for workers of former releases, which know less of them.
CREATE OR REPLACE FUNCTION perdure.incarnations(with_ended boolean) RETURNS TABLE (
    id uuid, name text, hosts bytea, started_at bigint, beats bigint, due_at bigint, locked boolean,
    lock_free boolean, ended_at bigint, died boolean, hang bytea
) LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT id, name, hosts, started_at, beats, due_at, locked, lock_free, ended_at, died, hang
    FROM perdure.workers_with_figures(with_ended)
$$;

CREATE OR REPLACE FUNCTION perdure.workers(with_ended boolean) RETURNS TABLE (
    id uuid, name text, hosts bytea, started_at bigint, beats bigint, due_at bigint, locked boolean,
    lock_free boolean, ended_at bigint, died boolean
) LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT id, name, hosts, started_at, beats, due_at, locked, lock_free, ended_at, died
    FROM perdure.workers_with_figures(with_ended)
$$;
