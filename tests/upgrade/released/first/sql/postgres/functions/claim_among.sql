-- Take those of the named processes that are due, hosted and free, without looking for others (rules 8 to 11). Tasks of
-- a queue that has a row, and with it limits, are left to perdure.claim: then left_due_at is now. One row at least.
CREATE OR REPLACE FUNCTION perdure.claim_among(
    worker uuid, kinds text[], codes text[], most int, lease bigint, ids uuid[]
) RETURNS TABLE (now bigint, left_due_at bigint, alive boolean, taken perdure.process_out)
LANGUAGE plpgsql
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
    SELECT array_agg(l.place), array_agg(l.id), min(l.limited) INTO places, chosen, left_t
    FROM (SELECT c.place, CASE WHEN c.limited IS NULL THEN c.id END AS id, c.limited
          FROM unnest(ids) AS u(id)
          CROSS JOIN LATERAL (
              SELECT p.id, p.ctid AS place,
                     CASE WHEN EXISTS (SELECT FROM perdure.queue q WHERE p.kind = '@' || q.name) THEN t END AS limited
              FROM perdure.process p
              WHERE p.id = u.id AND p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
                AND p.due_at <= t
                AND EXISTS (SELECT FROM unnest(kinds, codes) AS h(kind, code) WHERE h.kind = p.kind AND h.code = p.code)
              LIMIT most FOR NO KEY UPDATE SKIP LOCKED) AS c
          LIMIT most) AS l;
    UPDATE perdure.process p SET owner = worker, token = p.token + 1, due_at = t + lease * interval '1 microsecond',
        opened_at = coalesce(p.opened_at, t), changed_at = t
    WHERE p.ctid = ANY (places) AND p.id = ANY (chosen);
    RETURN QUERY
    SELECT perdure.micros(t), perdure.micros(left_t), true, v
    FROM (SELECT) AS always
    LEFT JOIN (unnest(chosen) AS u(id) CROSS JOIN LATERAL (
        SELECT o FROM perdure.process_out o WHERE o.id = u.id LIMIT 1) AS v(v)) ON u.id IS NOT NULL;
END
$$;
