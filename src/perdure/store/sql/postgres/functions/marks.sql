-- How far these processes are: what a store object compares with what it was told (see store/lineage.py).
CREATE OR REPLACE FUNCTION perdure.marks(ids uuid[]) RETURNS TABLE (id uuid, token int, version int, owner uuid)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT p.id, p.token, p.version, p.owner FROM perdure.process p WHERE p.id = ANY (ids);
END
$$;
