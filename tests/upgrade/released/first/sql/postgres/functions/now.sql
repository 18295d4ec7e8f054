-- The store's time as an expression. In plpgsql, which keeps the plan: an SQL function that reads a table is parsed and
-- planned anew at every call.
CREATE OR REPLACE FUNCTION perdure.now() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT k.t FROM perdure.present k);
END
$$;
