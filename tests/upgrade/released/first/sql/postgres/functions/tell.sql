-- Send one message inside a transaction of the caller's own: single values, so that any driver can call it.
-- Unlike a batch, which sets a locked target aside, it waits for whoever holds the row: nobody would try again for it.
CREATE OR REPLACE FUNCTION perdure.tell(
    new_id uuid, target uuid, new_type int, new_name text, new_payload bytea, new_key text, new_sender bytea,
    OUT verdict text, OUT number int, OUT now bigint
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM perdure.process p WHERE p.id = target FOR NO KEY UPDATE;
    SELECT s.verdicts[1], s.numbers[1], s.now INTO verdict, number, now
    FROM perdure.send(
        ARRAY[new_id], ARRAY[target], ARRAY[new_type], ARRAY[new_name], ARRAY[new_payload], ARRAY[new_key],
        ARRAY[new_sender]) AS s;
END
$$;
