-- The store's time: the server's clock or a test's, never behind its own high-water mark.
CREATE OR REPLACE FUNCTION perdure.now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT greatest(coalesce(c.fake, clock_timestamp()), c.high_water) FROM perdure.clock c WHERE c.one
$$;
