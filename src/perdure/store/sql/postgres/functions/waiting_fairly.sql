-- Running, unowned rows that have been due since before a given time, of the kinds and codes behind a given pair: as many
-- pairs as rows are asked for, and each has an equal part of the rows. A few seeks for each; suspects stand apart.
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
