-- A search as older workers ask for it.
CREATE OR REPLACE FUNCTION perdure.search(
    ids uuid[], of_kind text, of_key text, prefix text, statuses text[], created_from bigint, created_to bigint,
    names text[], texts text[], without_tasks boolean, before uuid, most int
) RETURNS SETOF perdure.process_out LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT * FROM perdure.search_page(
    ids, of_kind, of_key, prefix, statuses, created_from, created_to, names, texts, without_tasks, false, before, most)
$$;
