-- Put one message that the engine sends by itself into an inbox, or that of a worker of the release before: nothing is
-- refused. See perdure.send_alone_within.
CREATE OR REPLACE FUNCTION perdure.send_alone(
    new_id uuid, target uuid, new_type int, new_name text, new_payload bytea, new_key text, new_sender bytea,
    OUT now bigint, OUT verdicts text[], OUT numbers int[], OUT owners uuid[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT s.now, s.verdicts, s.numbers, s.owners INTO now, verdicts, numbers, owners
    FROM perdure.send_alone_within(new_id, target, new_type, new_name, new_payload, new_key, new_sender, NULL, NULL) AS s;
END
$$;
