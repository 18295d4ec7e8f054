-- Store new processes with their first events; what exists already is answered, not changed (rules 3, 11, 16, 24).
-- An array that is null stands for its column's default in every row. Only answers other than "created" are listed.
CREATE OR REPLACE FUNCTION perdure.start(
    s_id uuid[], s_kind text[], s_key text[], s_input bytea[], s_status text[], s_run int[], s_version int[],
    s_token int[], s_owner uuid[], s_lease bigint[], s_due bigint[], s_reminder boolean[], s_seen int[], s_events int[],
    s_awaiting text[], s_deaths int[], s_alone int[], s_deadline bigint[], s_priority int[], s_attributes text[],
    s_state bytea[], s_progress bytea[], s_result bytea[], s_error bytea[], s_parent uuid[], s_code text[],
    s_created bigint[], s_opened bigint[], workers uuid[],
    e_record int[], e_number int[], e_turn int[], e_type int[], e_at bigint[], e_place text[], e_name text[],
    e_payload bytea[], e_digest bytea[], e_message int[],
    OUT now bigint, OUT odd int[], OUT verdicts text[], OUT ids uuid[], OUT inboxes int[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t       timestamptz := perdure.now();
    gone    uuid[];
    created int;
    due     boolean;
    fresh   boolean[];
    kept    uuid[];
BEGIN
    now := perdure.micros(t);
    IF workers IS NOT NULL THEN
        SELECT array_agg(o.id) INTO gone FROM unnest(workers) AS o(id)
        WHERE NOT EXISTS (SELECT FROM perdure.worker w WHERE w.id = o.id AND w.ended_at IS NULL);
    END IF;
    WITH made AS (
        INSERT INTO perdure.process (
            id, created_at, opened_at, changed_at, due_at, deadline, status, run, version, token, inbox, seen, events,
            deaths, alone_deaths, priority, reminder, owner, parent, kind, key, code, awaiting, input, state, progress,
            result, error, attributes)
        SELECT u.id, coalesce(perdure.instant(u.created), t),
               coalesce(perdure.instant(u.opened), CASE WHEN u.owner IS NOT NULL THEN coalesce(perdure.instant(u.created), t) END),
               t,
               CASE WHEN u.owner IS NOT NULL THEN perdure.instant(now + coalesce(u.lease, 0))
                    WHEN u.status IN ('completed', 'failed', 'cancelled') THEN NULL
                    ELSE coalesce(perdure.instant(u.due), t) END,
               perdure.instant(u.deadline), coalesce(u.status, 'running')::perdure.status, coalesce(u.run, 1),
               coalesce(u.version, 0), coalesce(u.token, 0), 0, coalesce(u.seen, 0), coalesce(u.events, 0),
               coalesce(u.deaths, 0), coalesce(u.alone, 0), coalesce(u.priority, 4), coalesce(u.reminder, false),
               u.owner, u.parent, u.kind, u.key, coalesce(u.code, ''), u.awaiting, u.input, u.state, u.progress,
               u.result, u.error, u.attributes::jsonb
        FROM unnest(s_id, s_kind, s_key, s_input, s_status, s_run, s_version, s_token, s_owner, s_lease, s_due,
                    s_reminder, s_seen, s_events, s_awaiting, s_deaths, s_alone, s_deadline, s_priority, s_attributes,
                    s_state, s_progress, s_result, s_error, s_parent, s_code, s_created, s_opened)
             WITH ORDINALITY AS u(id, kind, key, input, status, run, version, token, owner, lease, due, reminder, seen,
                    events, awaiting, deaths, alone, deadline, priority, attributes, state, progress, result, error,
                    parent, code, created, opened, n)
        WHERE gone IS NULL OR u.owner IS NULL OR u.owner <> ALL (gone)
        ORDER BY u.kind, u.key, u.n  -- two starters with crossed keys take turns and do not deadlock
        ON CONFLICT DO NOTHING
        RETURNING status = 'running' AND owner IS NULL AND NOT reminder AND due_at <= t AS due
    )
    SELECT count(*), bool_or(made.due) INTO created, due FROM made;
    IF s_key IS NOT NULL THEN
        -- Read after the insert: a pruning that let us in has committed by now (rules 3 and 24).
        SELECT array_agg(u.id) INTO kept
        FROM unnest(s_id, s_kind, s_key) AS u(id, kind, key)
        JOIN perdure.key_kept k ON k.kind = u.kind AND k.key = u.key AND k.due_at > t;
    END IF;
    IF kept IS NOT NULL THEN
        DELETE FROM perdure.process p WHERE p.id = ANY (kept) AND p.xmin = pg_current_xact_id()::xid;
        created := -1;
    END IF;
    IF created <> cardinality(s_id) THEN
        SELECT array_agg(p.id IS NOT NULL ORDER BY u.n) INTO fresh
        FROM unnest(s_id) WITH ORDINALITY AS u(id, n)
        LEFT JOIN perdure.process p ON p.id = u.id AND p.xmin = pg_current_xact_id()::xid;
        SELECT array_agg(a.n), array_agg(a.verdict), array_agg(a.id), array_agg(a.inbox)
        INTO odd, verdicts, ids, inboxes
        FROM perdure.start_existing(s_id, s_kind, s_key, s_input, s_owner, gone, fresh, t) AS a;
    END IF;
    INSERT INTO perdure.event (process, at, run, number, turn, token, version, message, type, place, name, digest, payload)
    SELECT s_id[e.record], perdure.instant(e.at), coalesce(s_run[e.record], 1), e.number, e.turn,
           coalesce(s_token[e.record], 0), coalesce(s_version[e.record], 0), e.message, e.type, e.place, e.name,
           e.digest, e.payload
    FROM unnest(e_record, e_number, e_turn, e_type, e_at, e_place, e_name, e_payload, e_digest, e_message)
         AS e(record, number, turn, type, at, place, name, payload, digest, message)
    WHERE fresh IS NULL OR fresh[e.record];
    IF due THEN
        PERFORM pg_notify('perdure_due', '');
    END IF;
END
$$;
