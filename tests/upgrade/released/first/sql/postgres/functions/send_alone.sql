-- Put one message into the inbox of a running process: what an idle system does most, at half the cost of a batch of
-- one. Whatever is not as usual (the row is locked or does not run, the message is known or has a key) is left to
-- perdure.send.
CREATE OR REPLACE FUNCTION perdure.send_alone(
    new_id uuid, target uuid, new_type int, new_name text, new_payload bytea, new_key text, new_sender bytea,
    OUT now bigint, OUT verdicts text[], OUT numbers int[], OUT owners uuid[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t         timestamptz;
    place     tid;
    its_owner uuid;
    its_inbox int;
    its_kind  text;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);  -- what is accepted is on disk, whatever the server says
    END IF;
    IF new_key IS NULL THEN
        SELECT p.ctid, p.owner, p.inbox, p.kind INTO place, its_owner, its_inbox, its_kind
        FROM perdure.process p WHERE p.id = target AND p.status = 'running' FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    IF place IS NULL OR EXISTS (
        SELECT FROM perdure.message m WHERE m.id = new_id AND m.process IS NOT DISTINCT FROM target OFFSET 0
    ) THEN
        SELECT s.now, s.verdicts, s.numbers, s.owners INTO now, verdicts, numbers, owners
        FROM perdure.send(
            ARRAY[new_id], ARRAY[target], ARRAY[new_type], ARRAY[new_name], ARRAY[new_payload], ARRAY[new_key],
            ARRAY[new_sender]) AS s;
        RETURN;
    END IF;
    SELECT k.t INTO t FROM perdure.present k;
    INSERT INTO perdure.message (process, id, at, number, type, name, key, sender, payload)
    VALUES (target, new_id, t, its_inbox + 1, new_type, new_name, NULL, new_sender, new_payload);
    UPDATE perdure.process p SET
        inbox = its_inbox + 1,
        due_at = CASE WHEN p.owner IS NOT NULL THEN p.due_at WHEN p.reminder THEN t ELSE least(p.due_at, t) END,
        reminder = false,
        changed_at = CASE WHEN p.owner IS NULL THEN t ELSE p.changed_at END
    WHERE p.ctid = place;
    now := perdure.micros(t);
    verdicts := ARRAY['delivered'];
    numbers := ARRAY[its_inbox + 1];
    owners := ARRAY[its_owner];
    IF its_owner IS NULL THEN
        PERFORM perdure.tell_due(ARRAY[its_kind], ARRAY[target]);
    ELSE
        PERFORM pg_notify('perdure_told', target::text);
    END IF;
END
$$;
