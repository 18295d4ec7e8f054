-- A claim that may take tasks. Queues with a row are asked one after the other, by name, each for an equal part of what
-- is wanted, under the lock of that row; everything else is claimed as ever. Where no hosted queue has a row, this is
-- perdure.claim and one look at a tiny table.
CREATE OR REPLACE FUNCTION perdure.claim_queued(
    worker uuid, kinds text[], codes text[], most int, lease bigint, alone boolean, only_id uuid
) RETURNS TABLE (
    now bigint, next_due_at bigint, alive boolean, suspects boolean, was_owned_by uuid, taken perdure.process_out
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    limited text[] := ARRAY(SELECT q.name FROM perdure.queue q WHERE '@' || q.name = ANY (kinds) ORDER BY q.name);
    parts   int := cardinality(limited);
    t       timestamptz;
    found   record;
    chosen  uuid[] := '{}';
    owned   uuid[] := '{}';
    next_t  timestamptz;
    danger  boolean := false;
    others  int[];
BEGIN
    SELECT k.t INTO t FROM perdure.present k;
    IF parts > 0 AND EXISTS (SELECT FROM perdure.worker w WHERE w.id = worker AND w.ended_at IS NULL) THEN
        others := ARRAY(SELECT n FROM generate_subscripts(kinds, 1) AS n WHERE substr(kinds[n], 2) <> ALL (limited)
                        OR NOT starts_with(kinds[n], '@') ORDER BY n);
        FOR i IN 1 .. cardinality(limited) LOOP
            SELECT c.* INTO found
            FROM perdure.claim_limited(
                limited[i], ARRAY(SELECT codes[n] FROM generate_subscripts(kinds, 1) AS n WHERE kinds[n] = '@' || limited[i]),
                (most + parts - i + (cardinality(others) > 0)::int) / (parts - i + 1 + (cardinality(others) > 0)::int),
                alone, only_id, t) AS c;
            chosen := chosen || found.taken;
            owned := owned || found.owned;
            next_t := least(next_t, found.next_t);
            danger := danger OR found.suspects;
            most := most - cardinality(found.taken);
        END LOOP;
        UPDATE perdure.process p SET owner = worker, token = p.token + 1, due_at = t + lease * interval '1 microsecond',
            reminder = false, opened_at = coalesce(p.opened_at, t), changed_at = t
        WHERE p.id = ANY (chosen);
        RETURN QUERY
        SELECT perdure.micros(t), perdure.micros(next_t), true, danger, owned[u.n], v.o
        FROM (SELECT) AS always
        LEFT JOIN (unnest(chosen) WITH ORDINALITY AS u(id, n) CROSS JOIN LATERAL (
            SELECT o FROM perdure.process_out o WHERE o.id = u.id LIMIT 1) AS v) ON true
        ORDER BY u.n;
        IF cardinality(others) = 0 THEN
            RETURN;
        END IF;
        kinds := ARRAY(SELECT kinds[n] FROM unnest(others) WITH ORDINALITY AS o(n, i) ORDER BY i);
        codes := ARRAY(SELECT codes[n] FROM unnest(others) WITH ORDINALITY AS o(n, i) ORDER BY i);
    END IF;
    RETURN QUERY SELECT * FROM perdure.claim(worker, kinds, codes, most, lease, alone, only_id);
END
$$;
