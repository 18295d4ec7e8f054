-- Every worker that owns a process: one index seek per owner, however many processes it owns. In plpgsql, which keeps the
-- plan: an SQL function that reads a table is parsed and planned anew at every call.
CREATE OR REPLACE FUNCTION perdure.owners() RETURNS SETOF uuid LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    one uuid;
BEGIN
    SELECT p.owner INTO one FROM perdure.process p WHERE p.owner IS NOT NULL ORDER BY p.owner LIMIT 1;
    WHILE one IS NOT NULL LOOP
        RETURN NEXT one;
        SELECT p.owner INTO one FROM perdure.process p WHERE p.owner > one ORDER BY p.owner LIMIT 1;
    END LOOP;
END
$$;
