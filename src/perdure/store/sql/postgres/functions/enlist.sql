-- Register a new incarnation; enlisting it again changes nothing.
CREATE OR REPLACE FUNCTION perdure.enlist(
    worker uuid, name text, hosts bytea, silence bigint, locked boolean, OUT started_at bigint, OUT due_at bigint
) LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := perdure.now();
BEGIN
    INSERT INTO perdure.worker (id, started_at, due_at, beats, locked, died, name, hosts)
    VALUES (worker, t, t + silence * interval '1 microsecond', 0, locked, false, name, hosts)
    ON CONFLICT (id) DO NOTHING;
    SELECT perdure.micros(w.started_at), perdure.micros(w.due_at) INTO started_at, due_at
    FROM perdure.worker w WHERE w.id = worker;
END
$$;
