-- Start all but those whose keys guests hold, which are answered "busy": whoever asked tries again.
CREATE OR REPLACE FUNCTION perdure.start_unguarded(
    records perdure.start_in[], rare perdure.start_rare[], workers uuid[], new_events perdure.event_in[],
    unowned boolean, held int[],
    OUT now bigint, OUT odd int[], OUT verdicts text[], OUT ids uuid[], OUT inboxes int[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    free   int[] := ARRAY(SELECT n FROM generate_subscripts(records, 1) AS n WHERE n <> ALL (held) ORDER BY n);
    answer record;
BEGIN
    IF cardinality(free) = 0 THEN
        SELECT perdure.micros(k.t) INTO now FROM perdure.present k;
    ELSE
        SELECT * INTO answer FROM perdure.start(
            ARRAY(SELECT records[n] FROM unnest(free) WITH ORDINALITY AS f(n, o) ORDER BY o),
            CASE WHEN rare IS NOT NULL THEN
                ARRAY(SELECT rare[n] FROM unnest(free) WITH ORDINALITY AS f(n, o) ORDER BY o) END,
            workers,
            CASE WHEN new_events IS NOT NULL THEN
                ARRAY(SELECT ROW(array_position(free, e.record), e.number, e.turn, e.type, e.at, e.place, e.name,
                                 e.payload, e.digest, e.message)::perdure.event_in
                      FROM unnest(new_events) AS e WHERE e.record = ANY (free)) END,
            true, unowned);
        now := answer.now;
        odd := ARRAY(SELECT free[o] FROM unnest(answer.odd) WITH ORDINALITY AS f(o, i) ORDER BY i);
        verdicts := answer.verdicts;
        ids := answer.ids;
        inboxes := answer.inboxes;
    END IF;
    odd := held || odd;
    verdicts := array_fill('busy'::text, ARRAY[cardinality(held)]) || verdicts;
    ids := ARRAY(SELECT (records[n]).id FROM unnest(held) WITH ORDINALITY AS h(n, i) ORDER BY i) || ids;
    inboxes := array_fill(0, ARRAY[cardinality(held)]) || inboxes;
END
$$;
