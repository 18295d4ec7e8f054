-- The answers to calls, for a login that may send calls and may not read the rest of a history.
CREATE OR REPLACE FUNCTION perdure.answers_seen(
    wanted uuid, of_run int, beyond int, most int, backward boolean, types int[], names text[]
) RETURNS SETOF perdure.event_out LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (types = '{38,39}' AND names IS NOT NULL) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'this login may not read histories, only the answers to its calls';
    END IF;
    RETURN QUERY SELECT * FROM perdure.history(wanted, of_run, beyond, most, backward, types, names);
END
$$;
