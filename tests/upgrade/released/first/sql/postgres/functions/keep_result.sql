-- Record the result of a step in the transaction of its effect, if its process is still in the same hands: the row is
-- locked until the COMMIT that must follow at once, so that whoever takes it over sees the result or a rollback.
-- Nobody is notified: the owner is who asks.
CREATE OR REPLACE FUNCTION perdure.keep_result(
    new_id uuid, target uuid, holder uuid, fence int, new_name text, new_payload bytea, new_sender bytea,
    OUT verdict text, OUT number int, OUT at bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t     timestamptz;
    known int;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);  -- its worker goes on from what is on disk
    END IF;
    SELECT k.t INTO t FROM perdure.present k;
    at := perdure.micros(t);
    SELECT p.inbox + 1 INTO number FROM perdure.process p
    WHERE p.id = target AND p.token = fence AND p.owner = holder FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        verdict := 'refused';
        RETURN;
    END IF;
    SELECT m.number INTO known FROM perdure.message m WHERE m.id = new_id AND m.process IS NOT DISTINCT FROM target;
    IF FOUND THEN
        verdict := 'known';
        number := known;
        RETURN;
    END IF;
    INSERT INTO perdure.message (process, id, at, number, type, name, sender, payload)
    VALUES (target, new_id, t, number, 3, new_name, new_sender, new_payload);
    UPDATE perdure.process p SET inbox = number WHERE p.id = target;
    -- If its worker freezes before the COMMIT, the session is ended, and with it the lock.
    PERFORM set_config('idle_in_transaction_session_timeout', '10s', true);
    verdict := 'kept';
END
$$;
