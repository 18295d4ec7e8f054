-- The rows of the table, for a login that may see them and not change them.
CREATE OR REPLACE FUNCTION perdure.queues_seen(changes perdure.queue_in[]) RETURNS SETOF perdure.queue_out
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(changes) > 0 THEN
        RAISE insufficient_privilege USING MESSAGE = 'this login may look, and change nothing';
    END IF;
    RETURN QUERY SELECT * FROM perdure.queues('{}');
END
$$;
