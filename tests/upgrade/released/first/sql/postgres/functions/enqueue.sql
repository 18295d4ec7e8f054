-- Start one process inside a transaction of the caller's own: single values, so that any driver can call it.
-- A kept key is looked for before the start and after it, not only by it: it tells its own rows by the id of the whole
-- transaction, which rows that were written behind a savepoint do not bear.
CREATE OR REPLACE FUNCTION perdure.enqueue(
    new_id uuid, new_kind text, new_key text, new_input bytea, new_code text, lasting bigint, new_attributes text,
    OUT verdict text, OUT holder uuid, OUT now bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t      timestamptz;
    one    perdure.start_in;
    rare   perdure.start_rare;
    answer record;
BEGIN
    IF new_key IS NOT NULL THEN
        -- Tells the batches of others what they must not wait for (see start_guarded); other guests wait in line here.
        PERFORM pg_advisory_xact_lock_shared(1346720325, 0);
        PERFORM pg_advisory_xact_lock(1346720324, hashtext(new_kind || ' ' || new_key));
    END IF;
    SELECT k.t INTO t FROM perdure.present k;
    now := perdure.micros(t);
    one := ROW(new_id, new_kind, new_key, new_input, 0, 0, NULL, 0, NULL, 0, NULL, new_code, now, NULL);
    rare := ROW('running', 1, false, 0, 0, 0, now + lasting, 4, new_attributes, NULL, NULL, NULL, NULL, NULL);
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
