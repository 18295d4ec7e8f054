-- The incarnations with what blocks them, as their watchdogs found it.
CREATE OR REPLACE FUNCTION perdure.incarnations(with_ended boolean) RETURNS TABLE (
    id uuid, name text, hosts bytea, started_at bigint, beats bigint, due_at bigint, locked boolean,
    lock_free boolean, ended_at bigint, died boolean, hang bytea
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT seen.*, w.hang FROM perdure.workers(with_ended) AS seen JOIN perdure.worker w ON w.id = seen.id ORDER BY seen.id;
END
$$;
