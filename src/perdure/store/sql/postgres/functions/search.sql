-- Processes that people look for, and those that a sweep must look at.

-- Each kind and code of which running, unowned rows are due, or will be: one seek for each, however many rows there are.
CREATE OR REPLACE VIEW perdure.due_pair AS
WITH RECURSIVE pair AS (
    (SELECT p.kind, p.code FROM perdure.process p
     WHERE p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
     ORDER BY p.kind, p.code LIMIT 1)
    UNION ALL
    SELECT n.kind, n.code FROM pair CROSS JOIN LATERAL (
        SELECT p.kind, p.code FROM perdure.process p
        WHERE p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
          AND (p.kind, p.code) > (pair.kind, pair.code)
        ORDER BY p.kind, p.code LIMIT 1) AS n
)
SELECT pair.kind, pair.code FROM pair;

-- Running, unowned rows that have been due since before a given time: one seek for each kind, code and priority there is.
CREATE OR REPLACE FUNCTION perdure.waiting(since timestamptz, most int) RETURNS SETOF uuid LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off AS $$
    WITH due AS (
        SELECT c.id, c.due_at FROM perdure.due_pair AS pair
        CROSS JOIN generate_series(0, 9) AS y(priority)
        CROSS JOIN LATERAL (
            SELECT p.id, p.due_at FROM perdure.process p
            WHERE p.kind = pair.kind AND p.code = pair.code AND p.priority = y.priority AND p.due_at <= since
              AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
            ORDER BY p.due_at, p.id LIMIT most) AS c
        UNION ALL
        SELECT p.id, p.due_at FROM perdure.process p
        WHERE p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths >= 2 AND p.due_at <= since
    )
    SELECT due.id FROM due ORDER BY due.due_at, due.id LIMIT most
$$;

-- Running, unowned rows that have been due since before a given time, of the kinds and codes after a given pair: as many
-- pairs as rows are asked for, each with an equal part of the rows. A few seeks for each; suspects are read apart.
CREATE OR REPLACE FUNCTION perdure.waiting_fairly(since timestamptz, most int, of_kind text, of_code text)
RETURNS SETOF uuid LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off AS $$
    WITH known AS (
        SELECT d.kind, d.code FROM perdure.due_pair d
        UNION
        SELECT p.kind, p.code FROM perdure.process p
        WHERE p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths >= 2
    ), pair AS MATERIALIZED (
        SELECT known.kind, known.code FROM known
        WHERE (of_kind IS NULL OR (known.kind, known.code) > (of_kind, of_code))
          AND (EXISTS (
                SELECT FROM generate_series(0, 9) AS y(priority) CROSS JOIN LATERAL (
                    SELECT FROM perdure.process p
                    WHERE p.kind = known.kind AND p.code = known.code AND p.priority = y.priority AND p.due_at <= since
                      AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2 LIMIT 1) AS one)
            OR EXISTS (
                SELECT FROM perdure.process p
                WHERE p.kind = known.kind AND p.code = known.code AND p.due_at <= since
                  AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths >= 2))
        ORDER BY known.kind, known.code LIMIT most
    ), part AS MATERIALIZED (
        SELECT greatest(most / greatest(count(*), 1), 1) AS rows FROM pair
    )
    SELECT one.id FROM pair CROSS JOIN LATERAL (
        SELECT due.id FROM (
            SELECT c.id, c.due_at FROM generate_series(0, 9) AS y(priority)
            CROSS JOIN LATERAL (
                SELECT p.id, p.due_at FROM perdure.process p
                WHERE p.kind = pair.kind AND p.code = pair.code AND p.priority = y.priority AND p.due_at <= since
                  AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
                ORDER BY p.due_at, p.id LIMIT (SELECT part.rows FROM part)) AS c
            UNION ALL
            SELECT p.id, p.due_at FROM perdure.process p
            WHERE p.kind = pair.kind AND p.code = pair.code AND p.due_at <= since
              AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths >= 2) AS due
        ORDER BY due.due_at, due.id LIMIT (SELECT part.rows FROM part)) AS one
$$;

-- Rows that a sweep must look at, the longest overdue first; each way of being overdue has an index of its own.
CREATE OR REPLACE FUNCTION perdure.overdue(what text, most int, wanted uuid) RETURNS SETOF perdure.process_out
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := perdure.now();
BEGIN
    CASE what
    WHEN 'orphaned' THEN
        RETURN QUERY
        SELECT v.* FROM perdure.owners() AS o(owner)
        LEFT JOIN perdure.worker w ON w.id = o.owner
        CROSS JOIN LATERAL (
            SELECT p.id, p.due_at FROM perdure.process p WHERE p.owner = o.owner ORDER BY p.due_at, p.id LIMIT most) AS c
        CROSS JOIN LATERAL (SELECT o.* FROM perdure.process_out o WHERE o.id = c.id LIMIT 1) AS v
        WHERE w.id IS NULL OR w.ended_at IS NOT NULL
        ORDER BY c.due_at, c.id LIMIT most;
    WHEN 'lapsed' THEN
        RETURN QUERY
        SELECT v.* FROM perdure.owners() AS o(owner)
        CROSS JOIN LATERAL (
            SELECT p.id, p.due_at FROM perdure.process p
            WHERE p.owner = o.owner AND p.due_at <= t AND p.status = 'running' ORDER BY p.due_at, p.id LIMIT most) AS c
        CROSS JOIN LATERAL (SELECT o.* FROM perdure.process_out o WHERE o.id = c.id LIMIT 1) AS v
        ORDER BY c.due_at, c.id LIMIT most;
    WHEN 'owned' THEN
        RETURN QUERY
        SELECT v.* FROM (
            SELECT p.id, p.due_at FROM perdure.process p WHERE p.owner = wanted ORDER BY p.due_at, p.id LIMIT most) AS c
        CROSS JOIN LATERAL (SELECT o.* FROM perdure.process_out o WHERE o.id = c.id LIMIT 1) AS v ORDER BY c.due_at, c.id;
    WHEN 'expired' THEN
        RETURN QUERY
        SELECT v.* FROM (
            SELECT p.id, p.deadline FROM perdure.process p
            WHERE p.deadline <= t AND p.due_at IS NOT NULL ORDER BY p.deadline, p.id LIMIT most) AS c
        CROSS JOIN LATERAL (SELECT o.* FROM perdure.process_out o WHERE o.id = c.id LIMIT 1) AS v ORDER BY c.deadline, c.id;
    WHEN 'idle' THEN
        RETURN QUERY
        SELECT v.* FROM (
            SELECT p.id, p.due_at FROM perdure.process p
            WHERE p.reminder AND p.due_at <= t ORDER BY p.due_at, p.id LIMIT most) AS c
        CROSS JOIN LATERAL (SELECT o.* FROM perdure.process_out o WHERE o.id = c.id LIMIT 1) AS v ORDER BY c.due_at, c.id;
    WHEN 'unhosted' THEN
        RETURN QUERY
        SELECT v.* FROM perdure.waiting(t - interval '1 minute', most) AS c(id)
        CROSS JOIN LATERAL (SELECT o.* FROM perdure.process_out o WHERE o.id = c.id LIMIT 1) AS v ORDER BY v.due_at, v.id LIMIT most;
    END CASE;
END
$$;

-- A page of the rows that a sweep must look at, the longest overdue first, after a time and an id: those of the last row of
-- the page before, or null. Each way of being overdue has an index of its own. Unhosted rows are paged by kind and code
-- instead, so that each has an equal part of the page, and inboxes by the ids of their processes. (The function overdue,
-- of older workers, knows no pages.)
CREATE OR REPLACE FUNCTION perdure.overdue_page(
    what text, most int, wanted uuid, since bigint, behind uuid, of_kind text, of_code text
) RETURNS SETOF perdure.process_out
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := perdure.now();
    s timestamptz := coalesce(perdure.instant(since), '-infinity');
    b uuid := coalesce(behind, '00000000-0000-0000-0000-000000000000');
BEGIN
    CASE what
    WHEN 'orphaned' THEN
        RETURN QUERY
        SELECT v.* FROM perdure.owners() AS o(owner)
        LEFT JOIN perdure.worker w ON w.id = o.owner
        CROSS JOIN LATERAL (
            SELECT p.id, p.due_at FROM perdure.process p WHERE p.owner = o.owner AND p.due_at >= s AND (p.due_at, p.id) > (s, b)
            ORDER BY p.due_at, p.id LIMIT most) AS c
        CROSS JOIN LATERAL (SELECT o.* FROM perdure.process_out o WHERE o.id = c.id LIMIT 1) AS v
        WHERE w.id IS NULL OR w.ended_at IS NOT NULL
        ORDER BY c.due_at, c.id LIMIT most;
    WHEN 'lapsed' THEN
        RETURN QUERY
        SELECT v.* FROM perdure.owners() AS o(owner)
        CROSS JOIN LATERAL (
            SELECT p.id, p.due_at FROM perdure.process p
            WHERE p.owner = o.owner AND p.due_at <= t AND p.status = 'running'
              AND p.due_at >= s AND (p.due_at, p.id) > (s, b)
            ORDER BY p.due_at, p.id LIMIT most) AS c
        CROSS JOIN LATERAL (SELECT o.* FROM perdure.process_out o WHERE o.id = c.id LIMIT 1) AS v
        ORDER BY c.due_at, c.id LIMIT most;
    WHEN 'owned' THEN
        RETURN QUERY
        SELECT v.* FROM (
            SELECT p.id, p.due_at FROM perdure.process p
            WHERE p.owner = wanted AND p.due_at >= s AND (p.due_at, p.id) > (s, b)
            ORDER BY p.due_at, p.id LIMIT most) AS c
        CROSS JOIN LATERAL (SELECT o.* FROM perdure.process_out o WHERE o.id = c.id LIMIT 1) AS v ORDER BY c.due_at, c.id;
    WHEN 'expired' THEN
        RETURN QUERY
        SELECT v.* FROM (
            SELECT p.id, p.deadline FROM perdure.process p
            WHERE p.deadline <= t AND p.due_at IS NOT NULL
              AND p.deadline >= s AND (p.deadline, p.id) > (s, b)
            ORDER BY p.deadline, p.id LIMIT most) AS c
        CROSS JOIN LATERAL (SELECT o.* FROM perdure.process_out o WHERE o.id = c.id LIMIT 1) AS v ORDER BY c.deadline, c.id;
    WHEN 'idle' THEN
        RETURN QUERY
        SELECT v.* FROM (
            SELECT p.id, p.due_at FROM perdure.process p
            WHERE p.reminder AND p.due_at <= t AND p.due_at >= s AND (p.due_at, p.id) > (s, b)
            ORDER BY p.due_at, p.id LIMIT most) AS c
        CROSS JOIN LATERAL (SELECT o.* FROM perdure.process_out o WHERE o.id = c.id LIMIT 1) AS v ORDER BY c.due_at, c.id;
    WHEN 'unhosted' THEN
        RETURN QUERY
        SELECT v.* FROM perdure.waiting_fairly(t - interval '1 minute', most, of_kind, of_code) AS c(id)
        CROSS JOIN LATERAL (SELECT o.* FROM perdure.process_out o WHERE o.id = c.id LIMIT 1) AS v ORDER BY v.due_at, v.id;
    WHEN 'inbox' THEN
        RETURN QUERY
        WITH RECURSIVE inboxes(process) AS (
            (SELECT m.process FROM perdure.message m WHERE m.waits AND m.process > b ORDER BY m.process LIMIT 1)
            UNION ALL
            SELECT n.process FROM inboxes AS i CROSS JOIN LATERAL (
                SELECT m.process FROM perdure.message m WHERE m.waits AND m.process > i.process
                ORDER BY m.process LIMIT 1) AS n)
        SELECT v.* FROM (
            SELECT p.id FROM inboxes AS i JOIN perdure.process p ON p.id = i.process
            WHERE p.status = 'running' AND p.owner IS NULL AND p.due_at > t LIMIT most) AS c
        CROSS JOIN LATERAL (SELECT o.* FROM perdure.process_out o WHERE o.id = c.id LIMIT 1) AS v ORDER BY c.id;
    END CASE;
END
$$;

-- A page of the processes that had ended by a time, the longest ended first, after a time and an id: those of the last row
-- of the page before, or null.
CREATE OR REPLACE FUNCTION perdure.ended_page(ended_to bigint, since bigint, behind uuid, most int)
RETURNS SETOF perdure.process_out LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := perdure.instant(ended_to);
    s timestamptz := coalesce(perdure.instant(since), '-infinity');
    b uuid := coalesce(behind, '00000000-0000-0000-0000-000000000000');
BEGIN
    RETURN QUERY
    SELECT v.* FROM (
        SELECT p.id, p.changed_at FROM perdure.process p
        WHERE p.due_at IS NULL AND p.changed_at <= t AND p.changed_at >= s AND (p.changed_at, p.id) > (s, b)
        ORDER BY p.changed_at, p.id LIMIT most) AS c
    CROSS JOIN LATERAL (SELECT o.* FROM perdure.process_out o WHERE o.id = c.id LIMIT 1) AS v ORDER BY c.changed_at, c.id;
END
$$;

-- Processes, newest first; a null narrows nothing. Planned anew for the values given, so that it finds its index.
-- Unfinished rows stand in the indexes of those that wait, are owned, remind or rest. The planner uses these only if the
-- conditions name them: otherwise a search for the last few of them reads all rows that ever finished. Roots are
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

-- A search as older workers ask for it.
CREATE OR REPLACE FUNCTION perdure.search(
    ids uuid[], of_kind text, of_key text, prefix text, statuses text[], created_from bigint, created_to bigint,
    names text[], texts text[], without_tasks boolean, before uuid, most int
) RETURNS SETOF perdure.process_out LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT * FROM perdure.search_page(
    ids, of_kind, of_key, prefix, statuses, created_from, created_to, names, texts, without_tasks, false, before, most)
$$;

-- Processes of given ids, newest first: what every waiting client asks again and again. Its plan is kept, since making
-- one takes ten times as long as reading the row of one process.
CREATE OR REPLACE FUNCTION perdure.search_by_id(ids uuid[], statuses text[], most int)
RETURNS SETOF perdure.process_out LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    SELECT v.* FROM (SELECT DISTINCT u.id FROM unnest(ids) AS u(id)) AS wanted
    CROSS JOIN LATERAL (
        SELECT o.* FROM perdure.process_out o
        WHERE o.id = wanted.id AND (statuses IS NULL OR o.status = ANY (statuses)) OFFSET 0) AS v
    ORDER BY v.id DESC LIMIT most;
END
$$;

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

-- A count as older workers ask for it.
CREATE OR REPLACE FUNCTION perdure.count(
    ids uuid[], of_kind text, of_key text, prefix text, statuses text[], created_from bigint, created_to bigint,
    names text[], texts text[], without_tasks boolean
) RETURNS TABLE (kind text, status text, processes bigint) LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT * FROM perdure.counts(
    ids, of_kind, of_key, prefix, statuses, created_from, created_to, names, texts, without_tasks, false)
$$;
