-- Write commits, each accepted or refused by itself (rules 1 to 6). Verdicts other than "applied" are listed in odd.
-- An array that is null stands for its column's default in every row.
-- 1. Lock the rows in id order, passing by those that somebody holds, and compare the fence on the locked row.
-- 2. In later statements update the rows that fit and write what belongs to them, by their place in the batch:
--    nothing below looks for a process by its status, so no older snapshot can let a late answer through.
CREATE OR REPLACE FUNCTION perdure.commit(
    c_id uuid[], c_token int[], c_version int[], c_forced int[], c_status text[], c_run int[], c_owner uuid[],
    c_lease bigint[], c_due bigint[], c_reminder boolean[], c_seen int[], c_events int[], c_awaiting text[],
    c_deaths int[], c_alone int[], c_deadline bigint[], c_priority int[], c_attributes text[], c_state bytea[],
    c_progress bytea[], c_result bytea[], c_error bytea[], c_code text[], c_opened bigint[], c_not_before bigint[],
    c_offered int[],
    e_record int[], e_number int[], e_turn int[], e_type int[], e_at bigint[], e_place text[], e_name text[],
    e_payload bytea[], e_digest bytea[], e_message int[],
    m_record int[], m_number int[], m_event int[],
    OUT now bigint, OUT inboxes int[], OUT odd int[], OUT verdicts text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t        timestamptz := perdure.now();
    size     int := cardinality(c_id);
    held     int[];
    fitting  int;
    fullest  int;
    fits     boolean[];
    written  int;
    due      boolean;
    done     boolean;
BEGIN
    now := perdure.micros(t);
    SELECT array_agg(l.n), count(*) FILTER (WHERE l.fits), max(l.inbox) INTO held, fitting, fullest
    FROM (
        SELECT u.n::int AS n, p.inbox,
               p.token = u.token AND p.version = u.version AND (u.not_before IS NULL OR u.not_before <= now)
               AND (p.inbox <= u.seen OR u.forced > 0 OR u.status IS NULL
                    OR u.status NOT IN ('completed', 'failed', 'cancelled')) AS fits
        FROM unnest(c_id, c_token, c_version, c_forced, c_status, c_seen, c_not_before)
             WITH ORDINALITY AS u(id, token, version, forced, status, seen, not_before, n)
        JOIN perdure.process p ON p.id = u.id
        ORDER BY u.id
        FOR NO KEY UPDATE OF p SKIP LOCKED
    ) AS l;
    IF fitting < size THEN
        SELECT a.fits, a.odd, a.verdicts INTO fits, odd, verdicts
        FROM perdure.commit_verdicts(c_id, c_token, c_version, c_forced, c_status, c_run, c_seen, c_not_before,
                                     e_record, e_number, e_turn, e_type, e_at, e_place, e_name, e_payload, e_digest,
                                     e_message, held, now) AS a;
        fitting := cardinality(array_positions(fits, true));
    END IF;
    IF fitting > 0 THEN
        WITH changed AS (
            UPDATE perdure.process p SET
                status = coalesce(u.status, 'running')::perdure.status,
                version = p.version + 1,
                token = p.token + coalesce(u.forced, 0),
                run = coalesce(u.run, 1),
                owner = CASE WHEN u.lease > 0 THEN u.owner END,
                due_at = CASE WHEN u.lease > 0 THEN perdure.instant(now + u.lease)
                              WHEN u.status IN ('completed', 'failed', 'cancelled') THEN NULL
                              WHEN coalesce(u.status, 'running') = 'running' AND p.inbox > u.seen THEN t
                              ELSE perdure.instant(u.due) END,
                reminder = coalesce(u.reminder, false) AND u.lease IS NULL
                           AND NOT (coalesce(u.status, 'running') = 'running' AND p.inbox > u.seen),
                changed_at = t, seen = u.seen, events = u.events, awaiting = u.awaiting,
                deaths = coalesce(u.deaths, 0), alone_deaths = coalesce(u.alone, 0),
                deadline = perdure.instant(u.deadline), priority = coalesce(u.priority, 4),
                attributes = u.attributes::jsonb, state = u.state, progress = u.progress, result = u.result,
                error = u.error, code = coalesce(u.code, ''), opened_at = perdure.instant(u.opened)
            FROM unnest(c_id, c_token, c_version, c_forced, c_status, c_run, c_owner, c_lease, c_due, c_reminder,
                        c_seen, c_events, c_awaiting, c_deaths, c_alone, c_deadline, c_priority, c_attributes,
                        c_state, c_progress, c_result, c_error, c_code, c_opened)
                 WITH ORDINALITY AS u(id, token, version, forced, status, run, owner, lease, due, reminder, seen,
                        events, awaiting, deaths, alone, deadline, priority, attributes, state, progress, result,
                        error, code, opened, n)
            WHERE p.id = u.id AND p.token = u.token AND p.version = u.version AND (fits IS NULL OR fits[u.n])
            RETURNING p.owner IS NULL AND p.due_at <= t AND p.status = 'running' AND NOT p.reminder AS due,
                      p.status <> 'running' AND p.created_at IS DISTINCT FROM p.opened_at AS done
        )
        SELECT count(*), bool_or(changed.due), bool_or(changed.done) INTO written, due, done FROM changed;
        IF written <> fitting THEN
            RAISE data_exception USING MESSAGE = 'a batch holds two commits of one process';
        END IF;
        INSERT INTO perdure.event
            (process, at, run, number, turn, token, version, message, type, place, name, digest, payload)
        SELECT c_id[e.record], perdure.instant(e.at), coalesce(c_run[e.record], 1), e.number, e.turn,
               c_token[e.record] + coalesce(c_forced[e.record], 0), c_version[e.record] + 1, e.message, e.type,
               e.place, e.name, e.digest, e.payload
        FROM unnest(e_record, e_number, e_turn, e_type, e_at, e_place, e_name, e_payload, e_digest, e_message)
             AS e(record, number, turn, type, at, place, name, payload, digest, message)
        WHERE fits IS NULL OR fits[e.record];
        IF c_offered IS NOT NULL THEN
            UPDATE perdure.message m SET consumed_run = NULL, consumed_by = NULL
            FROM unnest(c_id, c_offered) WITH ORDINALITY AS u(id, offered, n)
            WHERE m.process = u.id AND m.number >= u.offered AND (fits IS NULL OR fits[u.n]);
        END IF;
        IF m_record IS NOT NULL THEN
            UPDATE perdure.message m SET consumed_run = coalesce(c_run[u.record], 1), consumed_by = u.event
            FROM unnest(m_record, m_number, m_event) AS u(record, number, event)
            WHERE m.process = c_id[u.record] AND m.number = u.number AND m.consumed_by IS NULL
              AND (fits IS NULL OR fits[u.record]);
        END IF;
        IF due THEN
            PERFORM pg_notify('perdure_due', '');
        END IF;
        IF done THEN
            PERFORM pg_notify('perdure_done', '');
        END IF;
    END IF;
    IF fullest > 0 THEN
        SELECT array_agg(coalesce(p.inbox, 0) ORDER BY u.n) INTO inboxes
        FROM unnest(c_id) WITH ORDINALITY AS u(id, n) LEFT JOIN perdure.process p ON p.id = u.id;
    END IF;
END
$$;
