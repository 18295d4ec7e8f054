-- The same with the limits that are usual, for guests of the release before.
CREATE OR REPLACE FUNCTION perdure.tell(
    new_id uuid, target uuid, new_type int, new_name text, new_payload bytea, new_key text, new_sender bytea,
    OUT verdict text, OUT number int, OUT now bigint
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT t.verdict, t.number, t.now INTO verdict, number, now
    FROM perdure.tell_within(new_id, target, new_type, new_name, new_payload, new_key, new_sender, NULL, NULL) AS t;
END
$$;
