-- Start processes for a login that may start and do nothing else: what nobody has in hand, has no history and no parent, is
-- no task, and brings no message but signals. Everything else is for workers.
CREATE OR REPLACE FUNCTION perdure.start_by_client(
    records perdure.start_in[], rare perdure.start_rare[], workers uuid[], new_events perdure.event_in[], keyed boolean,
    unowned boolean, letters perdure.letter_in[],
    OUT now bigint, OUT odd int[], OUT verdicts text[], OUT ids uuid[], OUT inboxes int[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF workers IS NOT NULL OR new_events IS NOT NULL OR EXISTS (
        SELECT FROM unnest(records) AS u
        WHERE u.owner IS NOT NULL OR u.opened_at IS NOT NULL OR u.kind IS NULL OR u.kind LIKE '@%'
           OR (u.version, u.token, u.events) IS DISTINCT FROM (0, 0, 0)
    ) OR EXISTS (
        SELECT FROM unnest(rare) AS r
        WHERE (coalesce(r.status, 'running'), coalesce(r.run, 1), coalesce(r.seen, 0), coalesce(r.deaths, 0),
               coalesce(r.alone_deaths, 0), coalesce(r.reminder, false)) IS DISTINCT FROM ('running', 1, 0, 0, 0, false)
           OR num_nonnulls(r.state, r.progress, r.result, r.error, r.parent, r.share) > 0
    ) OR EXISTS (
        SELECT FROM unnest(letters) AS m
        WHERE m.type IS DISTINCT FROM 1 OR (m.process = (records[m.record]).id) IS NOT TRUE
    ) THEN
        RAISE insufficient_privilege USING MESSAGE = 'this login may only start new processes, which nobody has in hand';
    END IF;
    IF letters IS NULL THEN
        SELECT * INTO now, odd, verdicts, ids, inboxes FROM perdure.start(records, rare, NULL, NULL, keyed, true);
    ELSE
        SELECT * INTO now, odd, verdicts, ids, inboxes
        FROM perdure.start_telling(records, rare, NULL, NULL, keyed, true, letters);
    END IF;
END
$$;
