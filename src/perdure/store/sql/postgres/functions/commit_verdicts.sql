-- What becomes of each commit of a batch in which not all fit: read after the lock, in statements of its own (rule 3).
-- A resend is known by the first event it wrote, compared whole: two supervisors may well make two different commands
-- with one token and version (rule 5). A commit without events is known by the row's token and version.
CREATE OR REPLACE FUNCTION perdure.commit_verdicts(
    c_id uuid[], c_token int[], c_version int[], c_forced int[], c_status text[], c_run int[], c_seen int[],
    c_not_before bigint[], e_record int[], e_number int[], e_turn int[], e_type int[], e_at bigint[], e_place text[],
    e_name text[], e_payload bytea[], e_digest bytea[], e_message int[], held int[], now bigint,
    OUT fits boolean[], OUT odd int[], OUT verdicts text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    locked boolean[] := array_fill(false, ARRAY[cardinality(c_id)]);
    first  int[] := array_fill(NULL::int, ARRAY[cardinality(c_id)]);
    n      int;
BEGIN
    FOREACH n IN ARRAY coalesce(held, '{}') LOOP
        locked[n] := true;
    END LOOP;
    FOR n IN REVERSE coalesce(cardinality(e_record), 0) .. 1 LOOP
        first[e_record[n]] := n;
    END LOOP;
    SELECT array_agg(v.verdict = 'fits' ORDER BY v.n),
           array_agg(v.n ORDER BY v.n) FILTER (WHERE v.verdict NOT IN ('fits', 'applied')),
           array_agg(v.verdict ORDER BY v.n) FILTER (WHERE v.verdict NOT IN ('fits', 'applied'))
    INTO fits, odd, verdicts
    FROM (
        SELECT u.n::int AS n, CASE
            WHEN p.id IS NULL THEN 'refused'
            WHEN NOT locked[u.n] THEN 'busy'
            WHEN p.token = u.token AND p.version = u.version THEN CASE
                WHEN u.not_before > now THEN 'early'
                WHEN p.inbox > u.seen AND coalesce(u.forced, 0) = 0
                     AND u.status IN ('completed', 'failed', 'cancelled') THEN 'read first'
                ELSE 'fits' END
            WHEN first[u.n] IS NULL AND p.token = u.token + coalesce(u.forced, 0) AND p.version = u.version + 1 THEN 'applied'
            WHEN EXISTS (
                SELECT FROM perdure.event e
                WHERE e.process = u.id AND e.run = coalesce(u.run, 1) AND e.number = e_number[first[u.n]]
                  AND e.token = u.token + coalesce(u.forced, 0) AND e.version = u.version + 1
                  AND e.turn = e_turn[first[u.n]] AND e.type = e_type[first[u.n]]
                  AND e.at = perdure.instant(e_at[first[u.n]])
                  AND e.place = e_place[first[u.n]] AND e.name = e_name[first[u.n]]
                  AND e.payload IS NOT DISTINCT FROM e_payload[first[u.n]]
                  AND e.digest IS NOT DISTINCT FROM e_digest[first[u.n]]
                  AND e.message IS NOT DISTINCT FROM e_message[first[u.n]]) THEN 'applied'
            ELSE 'refused' END AS verdict
        FROM unnest(c_id, c_token, c_version, c_forced, c_status, c_run, c_seen, c_not_before)
             WITH ORDINALITY AS u(id, token, version, forced, status, run, seen, not_before, n)
        LEFT JOIN perdure.process p ON p.id = u.id
    ) AS v;
END
$$;
