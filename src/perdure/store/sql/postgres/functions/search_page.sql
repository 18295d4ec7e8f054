-- Processes, newest first; a null narrows nothing. Planned anew for the values given, so that it finds its index.
-- Unfinished rows stand in the indexes of those that wait, are owned, remind or rest, which the planner can only use if
-- it is told: else a search for the last few of them reads through all that ever finished. Roots are
-- processes that no other one has started. (The function search, of older workers, knows no roots.)
CREATE OR REPLACE FUNCTION perdure.search_page(
    ids uuid[], of_kind text, of_key text, prefix text, statuses text[], created_from bigint, created_to bigint,
    names text[], texts text[], without_tasks boolean, roots boolean, before uuid, most int
) RETURNS SETOF perdure.process_out LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_custom_plan SET jit = off AS $$
#variable_conflict use_column
DECLARE
    contained jsonb;
BEGIN
    SELECT jsonb_object_agg(a.name, a.text::jsonb) INTO contained FROM unnest(names, texts) AS a(name, text);
    RETURN QUERY
    SELECT v.* FROM (
        SELECT p.id FROM perdure.process p
        WHERE (ids IS NULL OR p.id = ANY (ids))
          AND (of_kind IS NULL OR p.kind = of_kind)
          AND (of_key IS NULL OR p.key = of_key)
          AND (prefix IS NULL OR (p.key >= prefix AND starts_with(p.key, prefix)))
          AND (statuses IS NULL OR p.status = ANY (statuses::perdure.status[]))
          AND (statuses IS NULL OR statuses && '{completed,failed,cancelled}' OR p.status IN ('held', 'broken')
               OR ('running' = ANY (statuses) AND (
                    p.owner IS NOT NULL OR p.reminder
                    OR (p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2)
                    OR (p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths >= 2))))
          AND (NOT without_tasks OR p.kind < '@' OR p.kind >= 'A')
          AND (NOT roots OR p.parent IS NULL)
          AND (created_from IS NULL OR p.created_at >= perdure.instant(created_from))
          AND (created_to IS NULL OR p.created_at < perdure.instant(created_to))
          AND (before IS NULL OR p.id < before)
          AND (contained IS NULL OR p.attributes @> contained)
          AND (contained IS NULL OR NOT EXISTS (
                SELECT FROM jsonb_each(contained) AS e(name, value)
                WHERE (p.attributes -> e.name) IS DISTINCT FROM e.value))
        ORDER BY p.id DESC LIMIT most) AS c
    JOIN perdure.process_out v ON v.id = c.id
    ORDER BY v.id DESC;
END
$$;
