-- The store's time: the server's clock or a test's, never behind its own high-water mark.
-- In plpgsql, which keeps the plan: an SQL function that reads a table is parsed and planned anew at every call.
CREATE OR REPLACE FUNCTION perdure.now() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT greatest(coalesce(c.fake, clock_timestamp()), c.high_water) FROM perdure.clock c WHERE c.one);
END
$$;
