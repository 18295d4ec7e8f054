-- What becomes of each commit of a batch in which not all fit: read after the lock, in statements of its own (rule 3).
-- A resend is known by the first event it wrote, compared whole: two supervisors may well make two different commands
-- with one token and version (rule 5). A commit without events is known by the row's token and version. It stands among the
-- odd ones too: what it sent out was sent then, and a child that has been pruned since must not come back.
CREATE OR REPLACE FUNCTION perdure.commit_verdicts(
    records perdure.commit_in[], new_events perdure.event_in[], held int[], now bigint,
    OUT fits boolean[], OUT places tid[], OUT odd int[], OUT verdicts text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    locked boolean[] := array_fill(false, ARRAY[cardinality(records)]);
    first  int[] := array_fill(NULL::int, ARRAY[cardinality(records)]);
    n      int;
BEGIN
    FOREACH n IN ARRAY coalesce(held, '{}') LOOP
        locked[n] := true;
    END LOOP;
    FOR n IN REVERSE coalesce(cardinality(new_events), 0) .. 1 LOOP
        first[(new_events[n]).record] := n;
    END LOOP;
    SELECT array_agg(v.verdict = 'fits' ORDER BY v.n),
           array_agg(v.ctid ORDER BY v.n),
           array_agg(v.n ORDER BY v.n) FILTER (WHERE v.verdict <> 'fits'),
           array_agg(v.verdict ORDER BY v.n) FILTER (WHERE v.verdict <> 'fits')
    INTO fits, places, odd, verdicts
    FROM (
        SELECT u.n, p.ctid, CASE
            WHEN p.id IS NULL THEN 'refused'
            WHEN NOT locked[u.n] THEN 'busy'
            WHEN p.token = u.token AND p.version = u.version THEN CASE
                WHEN u.not_before > now THEN 'early'
                WHEN p.inbox > u.seen AND u.forced = 0 AND u.status >= 'completed' THEN 'read first'
                ELSE 'fits' END
            WHEN mark.number IS NULL AND p.token = u.token + u.forced AND p.version = u.version + 1 THEN 'applied'
            WHEN EXISTS (
                SELECT FROM perdure.event e
                WHERE e.process = u.id AND e.run = u.run AND e.number = mark.number
                  AND e.token = u.token + u.forced AND e.version = u.version + 1
                  AND e.turn = mark.turn AND e.type = mark.type AND e.at = perdure.instant(mark.at)
                  AND e.place = mark.place AND e.name = mark.name
                  AND e.payload IS NOT DISTINCT FROM mark.payload AND e.digest IS NOT DISTINCT FROM mark.digest
                  AND e.message IS NOT DISTINCT FROM mark.message OFFSET 0) THEN 'applied'
            ELSE 'refused' END AS verdict
        FROM generate_subscripts(records, 1) AS place(n)
        CROSS JOIN LATERAL (SELECT place.n, (records[place.n]).*) AS u
        CROSS JOIN LATERAL (SELECT (new_events[first[place.n]]).*) AS mark
        LEFT JOIN LATERAL (
            SELECT p.ctid, p.id, p.token, p.version, p.inbox FROM perdure.process p WHERE p.id = u.id LIMIT 1) AS p ON true
    ) AS v;
END
$$;
