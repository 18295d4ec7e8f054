-- Store new processes with their first events; what exists already is answered, not changed (rules 3, 11, 16, 24).
-- Only answers other than "created" are listed. The client sends records with keys in the order of their keys, so that
-- two starters with crossed keys take turns and do not deadlock.
CREATE OR REPLACE FUNCTION perdure.start(
    records perdure.start_in[], rare perdure.start_rare[], workers uuid[], new_events perdure.event_in[], keyed boolean,
    unowned boolean,
    OUT now bigint, OUT odd int[], OUT verdicts text[], OUT ids uuid[], OUT inboxes int[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t       timestamptz;
    gone    uuid[];
    created int;
    fresh   boolean[];
    kept    uuid[];
    held    int[];
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);  -- what is accepted is on disk, whatever the server says
    END IF;
    SELECT k.t INTO t FROM perdure.present k;
    now := perdure.micros(t);
    IF keyed AND NOT pg_try_advisory_xact_lock(1346720325, 0) THEN  -- taken by a guest, or by another starter
        SELECT perdure.start_guarded(records) INTO held;
        IF held IS NOT NULL THEN
            SELECT * INTO now, odd, verdicts, ids, inboxes
            FROM perdure.start_unguarded(records, rare, workers, new_events, unowned, held);
            RETURN;
        END IF;
    END IF;
    IF workers IS NOT NULL THEN
        SELECT array_agg(o.id) INTO gone FROM unnest(workers) AS o(id)
        WHERE NOT EXISTS (SELECT FROM perdure.worker w WHERE w.id = o.id AND w.ended_at IS NULL);
    END IF;
    INSERT INTO perdure.process (
        id, created_at, opened_at, changed_at, due_at, deadline, status, run, version, token, inbox, seen, events,
        deaths, alone_deaths, priority, reminder, owner, parent, kind, key, code, awaiting, input, state, progress,
        result, error, attributes, share, cost)
    SELECT u.id, coalesce(perdure.instant(u.created_at), t),
           CASE WHEN u.opened_at IS NOT NULL THEN perdure.instant(u.opened_at)
                WHEN u.owner IS NOT NULL THEN coalesce(perdure.instant(u.created_at), t) END,
           t,
           CASE WHEN u.owner IS NOT NULL THEN perdure.instant(now + u.lease)
                WHEN u.status >= 'completed' THEN NULL
                ELSE coalesce(perdure.instant(u.due_at), t) END,
           perdure.instant(u.deadline), coalesce(u.status, 'running'), coalesce(u.run, 1), u.version, u.token, 0,
           coalesce(u.seen, 0), u.events, coalesce(u.deaths, 0), coalesce(u.alone_deaths, 0),
           coalesce(u.priority, 4), coalesce(u.reminder, false), u.owner, u.parent, u.kind, u.key, u.code,
           u.awaiting, u.input, u.state, u.progress, u.result, u.error, u.attributes::jsonb,
           u.share, u.cost
    FROM ROWS FROM (unnest(records), unnest(rare)) AS u
    WHERE gone IS NULL OR u.owner IS NULL OR u.owner <> ALL (gone)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS created = ROW_COUNT;
    IF keyed THEN
        -- Read after the insert: a pruning that let us in has committed by now (rules 3 and 24).
        SELECT array_agg(u.id) INTO kept
        FROM unnest(records) AS u
        CROSS JOIN LATERAL (
            SELECT FROM perdure.key_kept k WHERE k.kind = u.kind AND k.key = u.key AND (k.due_at > t) IS TRUE LIMIT 1) AS k;
    END IF;
    IF kept IS NOT NULL THEN
        DELETE FROM perdure.process p WHERE p.id = ANY (kept) AND p.xmin = pg_current_xact_id()::xid;
    END IF;
    IF created <> cardinality(records) OR kept IS NOT NULL THEN
        SELECT array_agg(p.id IS NOT NULL ORDER BY u.n) INTO fresh
        FROM unnest(records) WITH ORDINALITY AS u(id, kind, key, input, version, token, owner, lease, due_at, events,
                                                  awaiting, code, created_at, opened_at, n)
        LEFT JOIN LATERAL (
            SELECT p.id FROM perdure.process p
            WHERE p.id = u.id AND p.xmin = pg_current_xact_id()::xid LIMIT 1) AS p ON true;
        SELECT array_agg(a.n), array_agg(a.verdict), array_agg(a.id), array_agg(a.inbox)
        INTO odd, verdicts, ids, inboxes
        FROM perdure.start_existing(records, gone, fresh, t) AS a;
    END IF;
    IF new_events IS NOT NULL THEN
        INSERT INTO perdure.event
            (process, at, run, number, turn, token, version, message, type, place, name, digest, payload)
        SELECT (records[e.record]).id, perdure.instant(e.at), coalesce((rare[e.record]).run, 1), e.number, e.turn,
               (records[e.record]).token, (records[e.record]).version, e.message, e.type, e.place, e.name, e.digest,
               e.payload
        FROM unnest(new_events) AS e
        WHERE fresh IS NULL OR fresh[e.record];
    END IF;
    IF unowned THEN
        PERFORM perdure.tell_due(array_agg(u.kind), array_agg(u.id))
        FROM unnest(records) AS u WHERE u.owner IS NULL AND (u.due_at IS NULL OR u.due_at <= now) HAVING count(*) > 0;
    END IF;
END
$$;
