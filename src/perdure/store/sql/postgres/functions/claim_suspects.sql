-- Lock due suspects (processes that twice died with their worker) for a claim by a quarantine worker: the first, and as
-- many of the same company (-alone_deaths) as may run with it.
CREATE OR REPLACE FUNCTION perdure.claim_suspects(kinds text[], codes text[], most int, t timestamptz)
RETURNS SETOF uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH taken AS MATERIALIZED (
        SELECT y.priority, c.due_at, c.id, c.alone_deaths AS mark
        FROM unnest(kinds, codes) AS h(kind, code)
        CROSS JOIN generate_series(0, 9) AS y(priority)
        CROSS JOIN LATERAL (
            SELECT p.due_at, p.id, p.alone_deaths FROM perdure.process p
            WHERE p.kind = h.kind AND p.code = h.code AND p.priority = y.priority AND p.due_at <= t
              AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths >= 2
            ORDER BY p.due_at, p.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED) AS c
    ), ordered AS (
        SELECT k.id, k.mark, row_number() OVER w AS n, first_value(k.mark) OVER w AS first
        FROM taken k WINDOW w AS (ORDER BY k.priority, k.due_at, k.id)
    ), alike AS (
        SELECT o.id, o.first, o.n, row_number() OVER (ORDER BY o.n) AS place
        FROM ordered o WHERE o.n <= most AND o.mark = o.first
    )
    SELECT a.id FROM alike a WHERE a.place <= greatest(1, -a.first) ORDER BY a.n;
END
$$;
