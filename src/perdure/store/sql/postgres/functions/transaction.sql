-- Inside a transaction that is not the store's: the caller's own, or that of a step.

-- Start one process inside a transaction of the caller's own: single values, so that any driver can call it.
-- A kept key is looked for before the start and after it, not only by perdure.start: that knows its own rows by the id of
-- the whole transaction, which rows written after a savepoint do not have.
CREATE OR REPLACE FUNCTION perdure.enqueue_with_priority(
    new_id uuid, new_kind text, new_key text, new_input bytea, new_code text, lasting bigint, new_attributes text,
    new_priority int,
    OUT verdict text, OUT holder uuid, OUT now bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t      timestamptz;
    chance bigint;
    one    perdure.start_in;
    rare   perdure.start_rare;
    answer record;
BEGIN
    IF new_key IS NOT NULL THEN
        -- Shows the batches of other sessions what they must not wait for (see start_guarded).
        LOCK TABLE perdure.gate IN SHARE MODE;
        LOOP
            chance := floor(random() * 4294967296)::bigint;
            EXIT WHEN pg_try_advisory_xact_lock(
                (chance << 32) | (hashtext(chance::text || ' ' || new_kind || ' ' || new_key)::bigint & 4294967295));
        END LOOP;
    END IF;
    SELECT k.t INTO t FROM perdure.present k;
    now := perdure.micros(t);
    one := ROW(new_id, new_kind, new_key, new_input, 0, 0, NULL, 0, NULL, 0, NULL, new_code, now, NULL);
    rare := ROW('running', 1, false, 0, 0, 0, now + lasting, new_priority, new_attributes, NULL, NULL, NULL, NULL, NULL);
    IF EXISTS (
        SELECT FROM perdure.key_kept k WHERE k.kind = new_kind AND k.key = new_key AND (k.due_at > t) IS TRUE OFFSET 0
    ) THEN
        SELECT a.verdict, a.id INTO verdict, holder FROM perdure.start_existing(ARRAY[one], NULL, ARRAY[false], t) AS a;
        RETURN;
    END IF;
    SELECT * INTO answer FROM perdure.start(ARRAY[one], ARRAY[rare], NULL, NULL, false, true);
    verdict := coalesce(answer.verdicts[1], 'created');
    holder := coalesce(answer.ids[1], new_id);
    IF verdict = 'created' AND EXISTS (
        SELECT FROM perdure.key_kept k WHERE k.kind = new_kind AND k.key = new_key AND (k.due_at > t) IS TRUE OFFSET 0
    ) THEN
        -- The process that had the key was pruned between two statements: begin again.
        RAISE serialization_failure;
    END IF;
END
$$;

-- The same with the usual priority, for clients of the release before.
CREATE OR REPLACE FUNCTION perdure.enqueue(
    new_id uuid, new_kind text, new_key text, new_input bytea, new_code text, lasting bigint, new_attributes text,
    OUT verdict text, OUT holder uuid, OUT now bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT e.verdict, e.holder, e.now INTO verdict, holder, now
    FROM perdure.enqueue_with_priority(
        new_id, new_kind, new_key, new_input, new_code, lasting, new_attributes, 4) AS e;
END
$$;

-- Send one message inside a transaction of the caller's own: single values, so that any driver can call it.
-- Unlike a batch, which sets a locked target aside, this waits for the row's lock: nobody would send the message again.
CREATE OR REPLACE FUNCTION perdure.tell_within(
    new_id uuid, target uuid, new_type int, new_name text, new_payload bytea, new_key text, new_sender bytea,
    most int, most_bytes bigint,
    OUT verdict text, OUT number int, OUT now bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
BEGIN
    IF new_type IS DISTINCT FROM 1 THEN
        RAISE insufficient_privilege USING MESSAGE = 'a guest sends signals, and nothing else';
    END IF;
    PERFORM FROM perdure.process p WHERE p.id = target FOR NO KEY UPDATE;
    SELECT s.verdicts[1], s.numbers[1], s.now INTO verdict, number, now
    FROM perdure.send_within(
        ARRAY[new_id], ARRAY[target], ARRAY[new_type], ARRAY[new_name], ARRAY[new_payload], ARRAY[new_key],
        ARRAY[new_sender],
        coalesce(most, 10000), coalesce(most_bytes, 67108864)) AS s;
END
$$;

-- The same with the usual limits, for clients of the release before.
CREATE OR REPLACE FUNCTION perdure.tell(
    new_id uuid, target uuid, new_type int, new_name text, new_payload bytea, new_key text, new_sender bytea,
    OUT verdict text, OUT number int, OUT now bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT t.verdict, t.number, t.now INTO verdict, number, now
    FROM perdure.tell_within(new_id, target, new_type, new_name, new_payload, new_key, new_sender, NULL, NULL) AS t;
END
$$;

-- Record the result of a step in the transaction of its effect, if the same worker still holds its process. The row is
-- locked until the COMMIT, which must follow at once, so that the next owner sees the result or a rollback.
-- Nobody is notified: the owner itself calls this.
CREATE OR REPLACE FUNCTION perdure.keep_result(
    new_id uuid, target uuid, holder uuid, fence int, new_name text, new_payload bytea, new_sender bytea,
    OUT verdict text, OUT number int, OUT at bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
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

-- Whether a step's result has been kept: asked on the step's own connection, whatever its search path is.
CREATE OR REPLACE FUNCTION perdure.result_known(wanted uuid, target uuid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM perdure.message m WHERE m.id = wanted AND m.process IS NOT DISTINCT FROM target OFFSET 0);
END
$$;
