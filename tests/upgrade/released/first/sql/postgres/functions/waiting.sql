-- Running, unowned rows that have been due since before a given time: one seek for each kind, code and priority there is.
CREATE OR REPLACE FUNCTION perdure.waiting(since timestamptz, most int) RETURNS SETOF uuid LANGUAGE sql STABLE
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
