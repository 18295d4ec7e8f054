-- The claim of a command.

-- Take one running process from its owner, for a command that no commit may outrun (rule 22). The answer's row is null if
-- the process does not run, if nobody owns it, or if its row stayed locked. Unlike a claim this waits a moment for the row's
-- lock: a process that commits without pause is locked at every look.
CREATE OR REPLACE FUNCTION perdure.seize(
    worker uuid, wanted uuid, lease bigint, OUT now bigint, OUT was_owned_by uuid, OUT taken perdure.process_out
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '200ms' AS $$
#variable_conflict use_column
DECLARE
    t    timestamptz;
    runs boolean;
BEGIN
    SELECT k.t INTO t FROM perdure.present k;
    now := perdure.micros(t);
    BEGIN
        SELECT p.owner, p.status = 'running' INTO was_owned_by, runs
        FROM perdure.process p WHERE p.id = wanted FOR NO KEY UPDATE;
    EXCEPTION WHEN lock_not_available THEN
        RETURN;
    END;
    IF runs IS NOT TRUE OR was_owned_by IS NULL THEN
        RETURN;
    END IF;
    UPDATE perdure.process p SET owner = worker, token = p.token % 2147483647 + 1, due_at = t + lease * interval '1 microsecond',
        reminder = false, opened_at = coalesce(p.opened_at, t), changed_at = t
    WHERE p.id = wanted;
    SELECT o.* INTO taken FROM perdure.process_out o WHERE o.id = wanted;
    PERFORM pg_notify('perdure_told', wanted::text);
END
$$;
