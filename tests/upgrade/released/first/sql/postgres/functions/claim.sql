-- Take due processes (rules 8, 9, 10, 11). The answer has one row at least; its process is null if nothing was taken.
CREATE OR REPLACE FUNCTION perdure.claim(
    worker uuid, kinds text[], codes text[], most int, lease bigint, alone boolean, only_id uuid
) RETURNS TABLE (
    now bigint, next_due_at bigint, alive boolean, suspects boolean, was_owned_by uuid, taken perdure.process_out
)
LANGUAGE plpgsql
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
BEGIN
    SELECT k.t INTO t FROM perdure.present k;
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
              LIMIT most FOR NO KEY UPDATE SKIP LOCKED) AS l;
    ELSE
        SELECT array_agg(l.id), array_agg(l.owner) INTO lapsed, owned
        FROM (SELECT c.id, c.owner FROM perdure.owners() AS o(owner)
              CROSS JOIN LATERAL (
                  SELECT p.id, p.owner, p.due_at FROM perdure.process p
                  WHERE p.owner = o.owner AND p.due_at <= t AND p.status = 'running' AND (p.deaths >= 2) = alone
                    AND EXISTS (SELECT FROM unnest(kinds, codes) AS h(kind, code)
                                WHERE h.kind = p.kind AND h.code = p.code)
                    AND NOT perdure.recovery_paused()
                  ORDER BY p.due_at, p.id LIMIT most FOR NO KEY UPDATE SKIP LOCKED) AS c
              ORDER BY c.due_at, c.id LIMIT most) AS l;
        most := most - coalesce(cardinality(lapsed), 0);
        IF alone THEN
            SELECT array_agg(l.id) INTO chosen FROM perdure.claim_suspects(kinds, codes, most, t) AS l(id);
        ELSE
            SELECT array_agg(l.id) INTO chosen FROM perdure.claim_due(kinds, codes, most, t) AS l(id);
        END IF;
    END IF;
    chosen := coalesce(lapsed, '{}') || coalesce(chosen, '{}');
    UPDATE perdure.process p SET owner = worker, token = p.token + 1, due_at = t + lease * interval '1 microsecond',
        reminder = false, opened_at = coalesce(p.opened_at, t), changed_at = t
    WHERE p.id = ANY (chosen);
    SELECT min(c.due_at) INTO next_t
    FROM unnest(kinds, codes) AS h(kind, code)
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
