-- Claims of processes that are due, where no queue has limits.

-- Whether a person has paused automatic recovery, or has set its budget, which sweeps spend and claims do not. Declared
-- costly, so that a claim calls it only where a lease has lapsed.
CREATE OR REPLACE FUNCTION perdure.recovery_paused() RETURNS boolean LANGUAGE plpgsql STABLE COST 100000 SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN EXISTS (SELECT FROM perdure.queue q WHERE q.name = ' recovery' AND (q.blocked_at IS NOT NULL OR q.rate IS NOT NULL));
END
$$;

-- How many of these processes, in their order, one answer holds: up to 8 MiB of what their rows hold, and one at least. The
-- length of a value is known without reading it.
CREATE OR REPLACE FUNCTION perdure.within_bytes(ids uuid[]) RETURNS int LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN (
        SELECT count(*) FROM (
            SELECT u.n, sum(b.bytes) OVER (ORDER BY u.n) AS total
            FROM unnest(ids) WITH ORDINALITY AS u(id, n)
            CROSS JOIN LATERAL (
                SELECT octet_length(p.input) + coalesce(octet_length(p.state), 0) + coalesce(octet_length(p.result), 0)
                       + coalesce(octet_length(p.error), 0) AS bytes
                FROM perdure.process p WHERE p.id = u.id LIMIT 1) AS b) AS s
        WHERE s.n = 1 OR s.total <= 8388608);
END
$$;

-- Lock due processes for a claim: first see (unlocked) how many each kind and priority may give in due order, then
-- take as many from each, skipping locked rows. Candidates are MATERIALIZED: no join can re-run a limit (rule 8).
-- No more are given than one answer holds, see perdure.within_bytes.
CREATE OR REPLACE FUNCTION perdure.claim_due(kinds text[], codes text[], most int, t timestamptz)
RETURNS SETOF uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH seen AS MATERIALIZED (
        SELECT h.kind, h.code, y.priority, c.due_at, c.id
        FROM unnest(kinds, codes) AS h(kind, code)
        CROSS JOIN generate_series(0, 9) AS y(priority)
        CROSS JOIN LATERAL (
            SELECT p.due_at, p.id FROM perdure.process p
            WHERE p.kind = h.kind AND p.code = h.code AND p.priority = y.priority AND p.due_at <= t
              AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
            ORDER BY p.due_at, p.id LIMIT most) AS c
        ORDER BY y.priority, c.due_at, c.id LIMIT most
    ), share AS MATERIALIZED (
        SELECT seen.kind, seen.code, seen.priority, count(*) AS rows FROM seen GROUP BY 1, 2, 3
    ), taken AS MATERIALIZED (
        SELECT s.priority, c.due_at, c.id, c.bytes
        FROM share s
        CROSS JOIN LATERAL (
            SELECT p.due_at, p.id,
                   octet_length(p.input) + coalesce(octet_length(p.state), 0) + coalesce(octet_length(p.result), 0)
                   + coalesce(octet_length(p.error), 0) AS bytes
            FROM perdure.process p
            WHERE p.kind = s.kind AND p.code = s.code AND p.priority = s.priority AND p.due_at <= t
              AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
            ORDER BY p.due_at, p.id LIMIT s.rows FOR NO KEY UPDATE SKIP LOCKED) AS c
    )
    SELECT b.id
    FROM (SELECT taken.id, row_number() OVER w AS n, sum(taken.bytes) OVER w AS total FROM taken
          WINDOW w AS (ORDER BY taken.priority, taken.due_at, taken.id ROWS UNBOUNDED PRECEDING)) AS b
    WHERE b.n = 1 OR b.total <= 8388608 ORDER BY b.n;
END
$$;

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

-- Take due processes (rules 8, 9, 10, 11). The answer has one row at least; its process is null if nothing was taken.
-- Kinds with limits are asked by themselves: where no hosted kind has some, this is one look at a tiny table.
-- Suspects are taken in one group only: the first, and as many of the same company (-alone_deaths) as may run with it.
CREATE OR REPLACE FUNCTION perdure.claim(
    worker uuid, kinds text[], codes text[], most int, lease bigint, alone boolean, only_id uuid
) RETURNS TABLE (
    now bigint, next_due_at bigint, alive boolean, suspects boolean, was_owned_by uuid, taken perdure.process_out
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t      timestamptz;
    chosen uuid[];
    owned  uuid[];
    lapsed uuid[];
    next_t timestamptz;
    next_suspect timestamptz;
    fit    int;
    limited text[];
    free_kinds text[] := kinds;
    free_codes text[] := codes;
BEGIN
    SELECT k.t, (
        SELECT array_agg(substr(q.name, 7) ORDER BY q.name) FROM perdure.queue q
        WHERE q.name > ' kind ' AND q.name < ' kind!' AND (q.concurrency IS NOT NULL OR q.rate IS NOT NULL)
          AND substr(q.name, 7) = ANY (kinds))
    INTO t, limited FROM perdure.present k;
    IF NOT EXISTS (SELECT FROM perdure.worker w WHERE w.id = worker AND w.ended_at IS NULL) THEN
        RETURN QUERY SELECT perdure.micros(t), NULL::bigint, false, false, NULL::uuid, NULL::perdure.process_out;
        RETURN;
    END IF;
    IF only_id IS NOT NULL THEN
        SELECT array_agg(l.id), array_agg(l.owner) INTO lapsed, owned
        FROM (SELECT p.id, p.owner FROM perdure.process p
              WHERE p.id = only_id AND p.status = 'running'
                AND (p.owner IS NULL OR (p.due_at <= t AND NOT perdure.recovery_paused()))
                AND (p.deaths >= 2) = alone
                AND EXISTS (SELECT FROM unnest(kinds, codes) AS h(kind, code) WHERE h.kind = p.kind AND h.code = p.code)
                AND (limited IS NULL OR alone OR p.owner IS NOT NULL OR p.share = ' place' OR p.kind <> ALL (limited))
              LIMIT most FOR NO KEY UPDATE SKIP LOCKED) AS l;
        IF limited IS NOT NULL AND lapsed IS NULL AND most > 0 THEN
            SELECT a.ids INTO chosen
            FROM perdure.process p CROSS JOIN LATERAL perdure.admit(
                p.kind, ARRAY(SELECT codes[n] FROM generate_subscripts(kinds, 1) AS n WHERE kinds[n] = p.kind),
                1, alone, only_id, t) AS a
            WHERE p.id = only_id AND p.kind = ANY (limited);
        END IF;
    ELSE
        SELECT array_agg(l.id ORDER BY l.n), array_agg(l.owner ORDER BY l.n) INTO lapsed, owned
        FROM (SELECT d.*, row_number() OVER (PARTITION BY alone AND d.mark <> d.first ORDER BY d.n) AS place
              FROM (SELECT c.id, c.owner, c.alone_deaths AS mark, row_number() OVER w AS n,
                           first_value(c.alone_deaths) OVER w AS first
                    FROM perdure.owners() AS o(owner)
                    CROSS JOIN LATERAL (
                        SELECT p.id, p.owner, p.due_at, p.alone_deaths FROM perdure.process p
                        WHERE p.owner = o.owner AND p.due_at <= t AND p.status = 'running' AND (p.deaths >= 2) = alone
                          AND EXISTS (SELECT FROM unnest(kinds, codes) AS h(kind, code)
                                      WHERE h.kind = p.kind AND h.code = p.code)
                          AND NOT perdure.recovery_paused()
                        ORDER BY p.due_at, p.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED) AS c
                    WINDOW w AS (ORDER BY c.due_at, c.id)) AS d
              WHERE d.n <= most) AS l
        WHERE NOT alone OR (l.mark = l.first AND l.place <= greatest(1, -l.first));
        most := CASE WHEN alone AND cardinality(lapsed) > 0 THEN 0 ELSE most - coalesce(cardinality(lapsed), 0) END;
        IF limited IS NOT NULL AND NOT alone THEN
            SELECT c.ids, c.next_t INTO chosen, next_t FROM perdure.claim_placed(limited, kinds, codes, most, t) AS c;
            free_kinds := ARRAY(SELECT k FROM unnest(kinds) WITH ORDINALITY AS u(k, n) WHERE k <> ALL (limited) ORDER BY n);
            free_codes := ARRAY(SELECT codes[n] FROM unnest(kinds) WITH ORDINALITY AS u(k, n)
                                WHERE k <> ALL (limited) ORDER BY n);
        ELSIF alone THEN
            SELECT array_agg(l.id) INTO chosen FROM perdure.claim_suspects(kinds, codes, most, t) AS l(id);
        ELSE
            SELECT array_agg(l.id) INTO chosen FROM perdure.claim_due(kinds, codes, most, t) AS l(id);
        END IF;
    END IF;
    chosen := coalesce(lapsed, '{}') || coalesce(chosen, '{}');
    IF cardinality(chosen) > 1 AND (cardinality(lapsed) > 0 OR limited IS NOT NULL OR alone) THEN
        fit := perdure.within_bytes(chosen);
        next_t := CASE WHEN fit < cardinality(chosen) THEN t ELSE next_t END;
        chosen := chosen[:fit];
    END IF;
    UPDATE perdure.process p SET owner = worker, token = p.token % 2147483647 + 1, due_at = t + lease * interval '1 microsecond',
        reminder = false, opened_at = coalesce(p.opened_at, t), changed_at = t
    WHERE p.id = ANY (chosen);
    SELECT least(next_t, min(c.due_at)) INTO next_t
    FROM unnest(free_kinds, free_codes) AS h(kind, code)
    CROSS JOIN generate_series(0, 9) AS y(priority)
    CROSS JOIN LATERAL (
        SELECT p.due_at FROM perdure.process p
        WHERE p.kind = h.kind AND p.code = h.code AND p.priority = y.priority
          AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
        ORDER BY p.due_at LIMIT 1) AS c;
    SELECT min(c.due_at) INTO next_suspect
    FROM unnest(kinds, codes) AS h(kind, code)
    CROSS JOIN generate_series(0, 9) AS y(priority)
    CROSS JOIN LATERAL (
        SELECT p.due_at FROM perdure.process p
        WHERE p.kind = h.kind AND p.code = h.code AND p.priority = y.priority
          AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths >= 2
        ORDER BY p.due_at LIMIT 1) AS c;
    RETURN QUERY
    SELECT perdure.micros(t), perdure.micros(CASE WHEN alone THEN next_suspect ELSE next_t END), true,
           coalesce(next_suspect <= t, false), owned[u.n], v.o
    FROM (SELECT) AS always
    LEFT JOIN (unnest(chosen) WITH ORDINALITY AS u(id, n) CROSS JOIN LATERAL (
        SELECT o, o.priority FROM perdure.process_out o WHERE o.id = u.id LIMIT 1) AS v) ON true
    ORDER BY v.priority, u.n;
END
$$;

-- Take those of the named processes that are due, hosted and free, without looking for others (rules 8 to 11). Tasks of
-- a queue that has a row, and so limits, are left to perdure.claim, and so is what waits for a place among the processes of
-- its kind, and what one answer does not hold (perdure.within_bytes): then left_due_at is now. One row at least.
CREATE OR REPLACE FUNCTION perdure.claim_among(
    worker uuid, kinds text[], codes text[], most int, lease bigint, ids uuid[]
) RETURNS TABLE (now bigint, left_due_at bigint, alive boolean, taken perdure.process_out)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t      timestamptz;
    places tid[];
    chosen uuid[];
    left_t timestamptz;
BEGIN
    SELECT k.t INTO t FROM perdure.present k;
    IF NOT EXISTS (SELECT FROM perdure.worker w WHERE w.id = worker AND w.ended_at IS NULL) THEN
        RETURN QUERY SELECT perdure.micros(t), NULL::bigint, false, NULL::perdure.process_out;
        RETURN;
    END IF;
    SELECT array_agg(l.place) FILTER (WHERE l.fits), array_agg(l.id) FILTER (WHERE l.fits),
           min(CASE WHEN l.fits THEN l.limited ELSE t END)
    INTO places, chosen, left_t
    FROM (SELECT d.place, CASE WHEN d.limited IS NULL THEN d.id END AS id, d.limited,
                 row_number() OVER w = 1 OR sum(d.bytes) OVER w <= 8388608 AS fits
          FROM (SELECT u.n, c.* FROM unnest(ids) WITH ORDINALITY AS u(id, n)
          CROSS JOIN LATERAL (
              SELECT p.id, p.ctid AS place,
                     octet_length(p.input) + coalesce(octet_length(p.state), 0) + coalesce(octet_length(p.result), 0)
                     + coalesce(octet_length(p.error), 0) AS bytes,
                     CASE WHEN EXISTS (
                         SELECT FROM perdure.queue q
                         WHERE p.kind = '@' || q.name OR (
                             ' kind ' || p.kind = q.name AND p.share IS DISTINCT FROM ' place'
                             AND (q.concurrency IS NOT NULL OR q.rate IS NOT NULL))) THEN t END AS limited
              FROM perdure.process p
              WHERE p.id = u.id AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
                AND p.due_at <= t
                AND EXISTS (SELECT FROM unnest(kinds, codes) AS h(kind, code) WHERE h.kind = p.kind AND h.code = p.code)
              LIMIT most FOR NO KEY UPDATE SKIP LOCKED) AS c
          LIMIT most) AS d
          WINDOW w AS (ORDER BY d.n ROWS UNBOUNDED PRECEDING)) AS l;
    UPDATE perdure.process p SET owner = worker, token = p.token % 2147483647 + 1, due_at = t + lease * interval '1 microsecond',
        opened_at = coalesce(p.opened_at, t), changed_at = t
    WHERE p.ctid = ANY (places) AND p.id = ANY (chosen);
    RETURN QUERY
    SELECT perdure.micros(t), perdure.micros(left_t), true, v
    FROM (SELECT) AS always
    LEFT JOIN (unnest(chosen) AS u(id) CROSS JOIN LATERAL (
        SELECT o FROM perdure.process_out o WHERE o.id = u.id LIMIT 1) AS v(v)) ON u.id IS NOT NULL;
END
$$;

-- Take processes that only wait, due or not, if they are free and still as the claimant has them in memory: each with the
-- token and the version of its row. Of a kind with limits, none. The answer has one row at least, as that of a claim.
CREATE OR REPLACE FUNCTION perdure.claim_resting(
    worker uuid, kinds text[], codes text[], most int, lease bigint, ids uuid[], tokens int[], versions int[]
) RETURNS TABLE (now bigint, alive boolean, taken perdure.process_out)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t      timestamptz;
    chosen uuid[];
BEGIN
    SELECT k.t INTO t FROM perdure.present k;
    IF NOT EXISTS (SELECT FROM perdure.worker w WHERE w.id = worker AND w.ended_at IS NULL) THEN
        RETURN QUERY SELECT perdure.micros(t), false, NULL::perdure.process_out;
        RETURN;
    END IF;
    SELECT array_agg(c.id ORDER BY u.n) INTO chosen
    FROM unnest(ids, tokens, versions) WITH ORDINALITY AS u(id, token, version, n)
    CROSS JOIN LATERAL (
        SELECT p.id FROM perdure.process p
        WHERE p.id = u.id AND p.token = u.token AND p.version = u.version AND p.status = 'running'
          AND p.owner IS NULL AND p.deaths < 2
          AND EXISTS (SELECT FROM unnest(kinds, codes) AS h(kind, code) WHERE h.kind = p.kind AND h.code = p.code)
          AND NOT EXISTS (
              SELECT FROM perdure.queue q
              WHERE p.kind = '@' || q.name OR (
                  ' kind ' || p.kind = q.name AND p.share IS DISTINCT FROM ' place'
                  AND (q.concurrency IS NOT NULL OR q.rate IS NOT NULL)))
        LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS c
    WHERE u.n <= most;
    chosen := chosen[:perdure.within_bytes(chosen)];
    UPDATE perdure.process p SET owner = worker, token = p.token % 2147483647 + 1, due_at = t + lease * interval '1 microsecond',
        reminder = false, opened_at = coalesce(p.opened_at, t), changed_at = t
    WHERE p.id = ANY (chosen);
    RETURN QUERY
    SELECT perdure.micros(t), true, v
    FROM (SELECT) AS always
    LEFT JOIN (unnest(chosen) AS u(id) CROSS JOIN LATERAL (
        SELECT o FROM perdure.process_out o WHERE o.id = u.id LIMIT 1) AS v(v)) ON u.id IS NOT NULL;
END
$$;
