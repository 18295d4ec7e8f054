-- A count as older workers ask for it.
CREATE OR REPLACE FUNCTION perdure.count(
    ids uuid[], of_kind text, of_key text, prefix text, statuses text[], created_from bigint, created_to bigint,
    names text[], texts text[], without_tasks boolean
) RETURNS TABLE (kind text, status text, processes bigint) LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT * FROM perdure.counts(
    ids, of_kind, of_key, prefix, statuses, created_from, created_to, names, texts, without_tasks, false)
$$;
