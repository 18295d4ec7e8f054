-- The incarnations, each with a look at its lock. The probe only looks in pg_locks and never takes what it probes
-- (rule 12). An advisory lock on a bigint shows its upper half as classid and its lower half as objid.
CREATE OR REPLACE FUNCTION perdure.workers(with_ended boolean) RETURNS TABLE (
    id uuid, name text, hosts bytea, started_at bigint, beats bigint, due_at bigint, locked boolean,
    lock_free boolean, ended_at bigint, died boolean
) LANGUAGE plpgsql AS $$
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
           perdure.micros(w.ended_at), w.died
    FROM perdure.worker w
    WHERE w.ended_at IS NULL OR with_ended
    ORDER BY w.id;
END
$$;
