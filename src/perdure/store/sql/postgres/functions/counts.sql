-- How many processes there are by kind and status; narrowed like a search. (The function count, of older
-- workers, knows no roots.)
CREATE OR REPLACE FUNCTION perdure.counts(
    ids uuid[], of_kind text, of_key text, prefix text, statuses text[], created_from bigint, created_to bigint,
    names text[], texts text[], without_tasks boolean, roots boolean
) RETURNS TABLE (kind text, status text, processes bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan SET jit = off AS $$
#variable_conflict use_column
DECLARE
    contained jsonb;
BEGIN
    SELECT jsonb_object_agg(a.name, a.text::jsonb) INTO contained FROM unnest(names, texts) AS a(name, text);
    RETURN QUERY
    SELECT p.kind, p.status::text, count(*) FROM perdure.process p
    WHERE (ids IS NULL OR p.id = ANY (ids))
      AND (of_kind IS NULL OR p.kind = of_kind)
      AND (of_key IS NULL OR p.key = of_key)
      AND (prefix IS NULL OR (p.key >= prefix AND starts_with(p.key, prefix)))
      AND (statuses IS NULL OR p.status = ANY (statuses::perdure.status[]))
      AND (NOT without_tasks OR p.kind < '@' OR p.kind >= 'A')
      AND (NOT roots OR p.parent IS NULL)
      AND (created_from IS NULL OR p.created_at >= perdure.instant(created_from))
      AND (created_to IS NULL OR p.created_at < perdure.instant(created_to))
      AND (contained IS NULL OR p.attributes @> contained)
      AND (contained IS NULL OR NOT EXISTS (
            SELECT FROM jsonb_each(contained) AS e(name, value)
            WHERE (p.attributes -> e.name) IS DISTINCT FROM e.value))
    GROUP BY p.kind, p.status ORDER BY p.kind, p.status;
END
$$;
