-- A new run is offered messages again, from a number on, and the letters that the run before it has received, which may
-- have lower numbers. Those that it keeps are consumed again, by its own events. Rare: every row is counted anew.
CREATE OR REPLACE FUNCTION perdure.offer_messages(
    records perdure.commit_in[], rare perdure.commit_rare[], new_events perdure.event_in[], fits boolean[]
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n        int;
    target   uuid;
    its_run  int;
    since    int;
BEGIN
    FOR n IN SELECT r.n FROM generate_subscripts(rare, 1) AS r(n) WHERE (rare[r.n]).message_offered IS NOT NULL
    LOOP
        CONTINUE WHEN fits IS NOT NULL AND NOT fits[n];
        target := (records[n]).id;
        its_run := (records[n]).run;
        since := (rare[n]).message_offered;
        UPDATE perdure.message m SET
            consumed_run = NULL, consumed_by = NULL, waits = CASE WHEN m.number < since THEN true END
        WHERE m.process = target AND (m.number >= since OR (m.consumed_run = its_run - 1 AND m.type IN (1, 7)));
        UPDATE perdure.message m SET consumed_run = its_run, consumed_by = e.number, waits = NULL
        FROM unnest(new_events) AS e
        WHERE e.record = n AND e.message IS NOT NULL AND m.process = target AND m.number = e.message;
        UPDATE perdure.process p SET waiting = found.letters, waiting_bytes = found.bytes
        FROM (
            SELECT count(*)::int AS letters, coalesce(sum(octet_length(m.payload)), 0) AS bytes FROM perdure.message m
            WHERE m.process = target AND m.consumed_by IS NULL AND m.type IN (1, 7)) AS found
        WHERE p.id = target;
    END LOOP;
END
$$;
