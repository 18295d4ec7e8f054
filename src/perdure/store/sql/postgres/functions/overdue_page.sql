-- A page of the rows that a sweep must look at, the longest overdue first, behind a time and an id: those of the row that
-- ended the page before, or null. Each way of being overdue has an index of its own. What nobody hosts goes by kind and
-- code instead, so that each has an equal part of the page, and inboxes by the ids of their processes. (The function overdue, of older workers, knows no pages.)
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
