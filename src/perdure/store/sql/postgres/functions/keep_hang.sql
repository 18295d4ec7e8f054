-- Write down what blocks a worker; the answer is the store's time, or null if there is no such worker.
CREATE OR REPLACE FUNCTION perdure.keep_hang(wanted uuid, blocker bytea) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE perdure.worker w SET hang = blocker WHERE w.id = wanted;
    IF FOUND THEN
        RETURN perdure.micros(perdure.now());
    END IF;
    RETURN NULL;
END
$$;
