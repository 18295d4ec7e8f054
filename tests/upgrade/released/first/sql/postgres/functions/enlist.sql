-- Register a new incarnation; enlisting it again changes nothing.
CREATE OR REPLACE FUNCTION perdure.enlist(
    worker uuid, name text, hosts bytea, silence bigint, locked boolean, OUT started_at bigint,
    OUT beats bigint, OUT due_at bigint, OUT counts boolean, OUT ended_at bigint, OUT died boolean
) LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
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
