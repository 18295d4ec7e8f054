-- Write commits, each accepted or refused by itself (rules 1 to 6). Those that are not written now are listed in odd.
-- 1. Lock the rows in id order (the client sorts), passing by those that somebody holds, and compare the fence on the
--    locked row, whose place (ctid) cannot change any more.
-- 2. In later statements update the rows that fit, at their place, and write what belongs to them by its number in the
--    batch: nothing below looks for a process, so no older snapshot can let a late answer through.
-- Rows are looked for in LATERAL subqueries that the planner cannot turn into joins: a plan made while a table was tiny
-- would else read it whole, once, which is a good plan that day and a ruinous one an hour later (rule 8).
CREATE OR REPLACE FUNCTION perdure.commit(
    records perdure.commit_in[], rare perdure.commit_rare[], new_events perdure.event_in[], consumed perdure.consumed_in[],
    published uuid[],
    OUT now bigint, OUT inboxes int[], OUT odd int[], OUT verdicts text[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t        timestamptz;
    held     int[];
    places   tid[];
    fitting  int;
    fullest  int;
    fits     boolean[];
    written  int;
    due      text[];
    done     bytea;
    told     text;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);  -- what is accepted is on disk, whatever the server says
    END IF;
    SELECT k.t INTO t FROM perdure.present k;
    now := perdure.micros(t);
    SELECT array_agg(l.n), array_agg(l.ctid), count(*) FILTER (WHERE l.fits), max(l.inbox),
           array_agg(l.kind) FILTER (WHERE l.due), string_agg(substr(uuid_send(l.id), 12), '') FILTER (WHERE l.done),
           string_agg(l.lost, ' ')
    INTO held, places, fitting, fullest, due, done, told
    FROM (
        SELECT u.n::int AS n, u.id, p.kind, p.ctid, p.inbox,
               p.token = u.token AND p.version = u.version AND (u.not_before IS NULL OR u.not_before <= now)
               AND (p.inbox <= u.seen OR u.forced > 0 OR u.status < 'completed') AS fits,
               u.status = 'running' AND u.lease = 0 AND (u.due_at <= now OR p.inbox > u.seen) AS due,
               u.status <> 'running' AND p.created_at IS DISTINCT FROM p.opened_at AS done,
               CASE WHEN u.forced > 0 AND p.owner IS NOT NULL THEN u.id::text END AS lost
        FROM unnest(records) WITH ORDINALITY AS u(id, token, version, forced, status, run, owner, lease, due_at, seen,
                                                  events, awaiting, result, code, opened_at, not_before, n)
        CROSS JOIN LATERAL (
            SELECT p.ctid, p.token, p.version, p.inbox, p.created_at, p.opened_at, p.owner, p.kind FROM perdure.process p
            WHERE p.id = u.id
            FOR NO KEY UPDATE SKIP LOCKED) AS p
    ) AS l;
    IF fitting < cardinality(records) THEN
        SELECT a.fits, a.places, a.odd, a.verdicts INTO fits, places, odd, verdicts
        FROM perdure.commit_verdicts(records, new_events, held, now) AS a;
        fitting := cardinality(array_positions(fits, true));
    END IF;
    IF fitting > 0 THEN
        UPDATE perdure.process p SET
            status = u.status,
            version = p.version + 1,
            token = p.token + u.forced,
            run = u.run,
            owner = CASE WHEN u.lease > 0 THEN u.owner END,
            due_at = CASE WHEN u.lease > 0 THEN perdure.instant(now + u.lease)
                          WHEN u.status >= 'completed' THEN NULL
                          WHEN u.status = 'running' AND p.inbox > u.seen THEN t
                          ELSE perdure.instant(u.due_at) END,
            reminder = u.reminder IS TRUE AND u.lease = 0 AND NOT (u.status = 'running' AND p.inbox > u.seen),
            changed_at = t, seen = u.seen, events = u.events, awaiting = u.awaiting, result = u.result,
            code = u.code, opened_at = perdure.instant(u.opened_at), deaths = coalesce(u.deaths, 0), alone_deaths = coalesce(u.alone_deaths, 0),
            deadline = perdure.instant(u.deadline), priority = coalesce(u.priority, 4),
            attributes = CASE WHEN u.attributes IS NULL THEN p.attributes ELSE nullif(u.attributes, 'null')::jsonb END,
            state = u.state, progress = u.progress, error = u.error
        FROM ROWS FROM (unnest(records), unnest(rare)) WITH ORDINALITY
             AS u(id, token, version, forced, status, run, owner, lease, due_at, seen, events, awaiting, result,
                  code, opened_at, not_before, reminder, deaths, alone_deaths, deadline, priority, attributes, state, progress,
                  error, message_offered, n)
        WHERE p.ctid = places[u.n] AND p.id = u.id AND p.token = u.token AND p.version = u.version
          AND (fits IS NULL OR fits[u.n]);
        GET DIAGNOSTICS written = ROW_COUNT;
        IF written <> fitting THEN
            RAISE data_exception USING MESSAGE = 'a batch holds two commits of one process';
        END IF;
        IF new_events IS NOT NULL THEN
            INSERT INTO perdure.event
                (process, at, run, number, turn, token, version, message, type, place, name, digest, payload)
            SELECT (records[e.record]).id, perdure.instant(e.at), (records[e.record]).run, e.number, e.turn,
                   (records[e.record]).token + (records[e.record]).forced, (records[e.record]).version + 1, e.message,
                   e.type, e.place, e.name, e.digest, e.payload
            FROM unnest(new_events) AS e
            WHERE fits IS NULL OR fits[e.record];
        END IF;
        IF rare IS NOT NULL THEN
            UPDATE perdure.message m SET consumed_run = NULL, consumed_by = NULL
            FROM (
                SELECT l.place FROM generate_subscripts(rare, 1) AS r(n)
                CROSS JOIN LATERAL (
                    SELECT m.ctid AS place FROM perdure.message m
                    WHERE m.process = (records[r.n]).id AND m.number >= (rare[r.n]).message_offered OFFSET 0) AS l
                WHERE fits IS NULL OR fits[r.n]) AS x
            WHERE m.ctid = x.place;
        END IF;
        IF consumed IS NOT NULL THEN
            UPDATE perdure.message m SET consumed_run = (records[x.record]).run, consumed_by = x.event
            FROM (
                SELECT u.record, u.event, l.place FROM unnest(consumed) AS u
                CROSS JOIN LATERAL (
                    SELECT m.ctid AS place FROM perdure.message m
                    WHERE m.process = (records[u.record]).id AND m.number = u.number AND m.consumed_by IS NULL
                    OFFSET 0) AS l
                WHERE fits IS NULL OR fits[u.record]) AS x
            WHERE m.ctid = x.place;
        END IF;
        IF due IS NOT NULL THEN
            PERFORM perdure.tell_due(due, NULL);
        END IF;
        IF done IS NOT NULL THEN
            PERFORM pg_notify('perdure_done', encode(done, 'base64'));
        END IF;
        IF published IS NOT NULL THEN
            PERFORM perdure.tell_published(published);
        END IF;
        IF told IS NOT NULL THEN  -- whoever had these rows hears that he has lost them
            PERFORM pg_notify('perdure_told', CASE WHEN length(told) < 7900 THEN told ELSE '' END);
        END IF;
    END IF;
    IF fullest > 0 THEN
        SELECT array_agg(coalesce(p.inbox, 0) ORDER BY place.n) INTO inboxes
        FROM generate_subscripts(records, 1) AS place(n)
        LEFT JOIN LATERAL (SELECT p.inbox FROM perdure.process p WHERE p.id = (records[place.n]).id LIMIT 1) AS p ON true;
    END IF;
END
$$;
