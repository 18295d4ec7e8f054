-- A sign of life as workers of the first schema ask for it: see heartbeat.sql.
CREATE OR REPLACE FUNCTION perdure.beat(
    worker uuid, lease bigint, silence bigint, r_process uuid[], r_token int[], r_progress bytea[],
    OUT now bigint, OUT alive boolean, OUT lost uuid[]
) LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT h.now, h.alive, h.lost FROM perdure.heartbeat($1, $2, $3, $4, $5, $6) AS h
$$;
