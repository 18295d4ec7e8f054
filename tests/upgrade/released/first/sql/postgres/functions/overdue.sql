-- Rows that a sweep must look at, the longest overdue first; each way of being overdue has an index of its own.
CREATE OR REPLACE FUNCTION perdure.overdue(what text, most int, wanted uuid) RETURNS SETOF perdure.process_out
LANGUAGE plpgsql
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
