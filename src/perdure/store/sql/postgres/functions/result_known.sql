-- Whether a step's result has been kept: asked on the step's own connection, whatever its search path is.
CREATE OR REPLACE FUNCTION perdure.result_known(wanted uuid, target uuid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM perdure.message m WHERE m.id = wanted AND m.process IS NOT DISTINCT FROM target OFFSET 0);
END
$$;
