-- Commits in a batch, and what they send out.

-- The verdict on each commit of a batch in which not all fit: read after the lock, in statements of its own (rule 3).
-- A resend is known by the first event it wrote, compared whole: two supervisors may well make two different commands
-- with one token and version (rule 5). A commit without events is known by the row's token and version. A resend is listed
-- in odd too: its children and messages were sent the first time, and a child that was pruned since must not come back.
CREATE OR REPLACE FUNCTION perdure.commit_verdicts(
    records perdure.commit_in[], new_events perdure.event_in[], held int[], now bigint,
    OUT fits boolean[], OUT places tid[], OUT odd int[], OUT verdicts text[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
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

-- Consume messages, each by the event that records it. A letter without an event (0) stays in the inbox, marked, until its
-- process receives it; one that was received is put back. The rows count what waits.
CREATE OR REPLACE FUNCTION perdure.move_letters(
    records perdure.commit_in[], consumed perdure.consumed_in[], fits boolean[]
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    WITH moved AS (
        UPDATE perdure.message m SET
            consumed_run = CASE WHEN x.event > 0 THEN (records[x.record]).run END,
            consumed_by = nullif(x.event, 0),
            waits = CASE WHEN x.event = 0 THEN true END
        FROM (
            SELECT u.record, u.event, l.place, l.letters FROM unnest(consumed) AS u
            CROSS JOIN LATERAL (
                SELECT m.ctid AS place,
                       CASE WHEN m.type NOT IN (1, 7) THEN 0 WHEN u.event > 0 THEN -1
                            WHEN m.consumed_by IS NOT NULL THEN 1 ELSE 0 END AS letters
                FROM perdure.message m
                WHERE m.process = (records[u.record]).id AND m.number = u.number
                  AND (m.consumed_by IS NULL OR u.event = 0)
                OFFSET 0) AS l
            WHERE (fits IS NULL OR fits[u.record]) AND u.record = abs(u.record)) AS x
        WHERE m.ctid = x.place
        RETURNING m.process, x.letters, x.letters * octet_length(m.payload) AS bytes
    ), summed AS (
        SELECT moved.process, sum(moved.letters)::int AS letters, sum(moved.bytes) AS bytes
        FROM moved WHERE moved.letters <> 0 GROUP BY moved.process
    )
    UPDATE perdure.process p SET
        waiting = greatest(0, coalesce(p.waiting, 0) + s.letters),
        waiting_bytes = greatest(0, coalesce(p.waiting_bytes, 0) + s.bytes)
    FROM (
        SELECT summed.letters, summed.bytes, l.place FROM summed
        CROSS JOIN LATERAL (
            SELECT p.ctid AS place FROM perdure.process p WHERE p.id = summed.process LIMIT 1) AS l) AS s
    WHERE p.ctid = s.place;
END
$$;

-- A new run is offered messages again, from a number on, and the letters that the run before it has received, which may
-- have lower numbers. Those that it keeps are consumed again, by its own events; then the whole inbox is counted again.
-- Most processes that are commanded have no message at all: of them one look at the row is all there is to do.
CREATE OR REPLACE FUNCTION perdure.offer_messages(
    records perdure.commit_in[], rare perdure.commit_rare[], new_events perdure.event_in[], fits boolean[]
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    places  int[];
    targets uuid[];
    runs    int[];
    sinces  int[];
BEGIN
    SELECT array_agg(u.n), array_agg(u.id), array_agg(u.run), array_agg(u.since) INTO places, targets, runs, sinces
    FROM (SELECT r.n, (records[r.n]).id, (records[r.n]).run, (rare[r.n]).message_offered AS since
          FROM generate_subscripts(rare, 1) AS r(n)) AS u
    WHERE u.since IS NOT NULL AND (fits IS NULL OR fits[u.n])
      AND (SELECT p.inbox > 0 FROM perdure.process p WHERE p.id = u.id);
    IF places IS NULL THEN
        RETURN;
    END IF;
    UPDATE perdure.message m SET
        consumed_run = NULL, consumed_by = NULL, waits = CASE WHEN m.number < x.since THEN true END
    FROM (
        SELECT u.since, l.place FROM unnest(targets, runs, sinces) AS u(id, run, since)
        CROSS JOIN LATERAL (
            SELECT m.ctid AS place FROM perdure.message m
            WHERE m.process = u.id AND (m.number >= u.since OR (m.consumed_run = u.run - 1 AND m.type IN (1, 7)))
            OFFSET 0) AS l
        WHERE u.run = abs(u.run)) AS x
    WHERE m.ctid = x.place;
    UPDATE perdure.message m SET consumed_run = x.run, consumed_by = x.number, waits = NULL
    FROM (
        SELECT u.run, e.number, l.place FROM unnest(places, targets, runs) AS u(n, id, run)
        JOIN unnest(new_events) AS e ON e.record = u.n
        CROSS JOIN LATERAL (
            SELECT m.ctid AS place FROM perdure.message m WHERE m.process = u.id AND m.number = e.message OFFSET 0) AS l
        WHERE e.message IS NOT NULL AND u.run = abs(u.run)) AS x
    WHERE m.ctid = x.place;
    UPDATE perdure.process p SET waiting = found.letters, waiting_bytes = found.bytes
    FROM unnest(targets) AS u(id)
    CROSS JOIN LATERAL (
        SELECT count(*)::int AS letters, coalesce(sum(octet_length(m.payload)), 0) AS bytes FROM perdure.message m
        WHERE m.process = u.id AND m.consumed_by IS NULL AND m.type IN (1, 7)) AS found
    WHERE p.id = u.id AND (p.waiting, p.waiting_bytes) IS DISTINCT FROM (found.letters, found.bytes);
END
$$;

-- Write commits, each accepted or refused by itself (rules 1 to 6). Those that are not written now are listed in odd.
-- 1. Lock the rows in id order (the client sorts), skipping those that are locked already, and compare the fence on the
--    locked row, whose place (ctid) cannot change any more.
-- 2. In later statements update the rows that fit, at their place, and write what belongs to them by its number in the
--    batch: nothing below looks for a process, so no older snapshot can let a late answer through.
-- Rows are looked for in LATERAL subqueries that the planner cannot turn into joins: a plan made while a table was tiny
-- would else read it whole, once, which is a good plan that day and a ruinous one an hour later (rule 8). Nor may it read
-- the table first, and the batch once for each row of it: a number is compared with its own abs(), which is always true and
-- lets the planner take the batch for one row.
CREATE OR REPLACE FUNCTION perdure.commit(
    records perdure.commit_in[], rare perdure.commit_rare[], new_events perdure.event_in[], consumed perdure.consumed_in[],
    published uuid[],
    OUT now bigint, OUT inboxes int[], OUT odd int[], OUT verdicts text[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
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
    SELECT array_agg(l.n), array_agg(l.ctid), count(*) FILTER (WHERE l.fits), max(greatest(l.inbox, l.seen)),
           array_agg(l.kind) FILTER (WHERE l.due), string_agg(substr(uuid_send(l.id), 12), '') FILTER (WHERE l.done),
           string_agg(l.lost, ' ')
    INTO held, places, fitting, fullest, due, done, told
    FROM (
        SELECT u.n::int AS n, u.id, p.kind, p.ctid, p.inbox, u.seen,
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
            -- a reminder changes nothing but the next one's time
            changed_at = CASE WHEN u.reminder IS TRUE AND p.reminder AND u.lease = 0 AND u.events = p.events
                                   AND u.status = p.status AND (u.status <> 'running' OR p.inbox = p.seen) THEN p.changed_at ELSE t END,
            -- only a letter that the commit itself brings can have been seen before it was there
            inbox = greatest(p.inbox, u.seen), seen = u.seen, events = u.events, awaiting = u.awaiting, result = u.result,
            code = u.code, opened_at = perdure.instant(u.opened_at), deaths = coalesce(u.deaths, 0), alone_deaths = coalesce(u.alone_deaths, 0),
            deadline = perdure.instant(u.deadline), priority = coalesce(u.priority, 4),
            attributes = CASE WHEN u.attributes IS NULL THEN p.attributes ELSE nullif(u.attributes, 'null')::jsonb END,
            state = u.state, error = u.error,
            share = CASE WHEN u.status >= 'completed' THEN nullif(p.share, ' place') ELSE p.share END,
            progress = CASE WHEN u.progress = '' THEN p.progress ELSE u.progress END
        FROM ROWS FROM (unnest(records), unnest(rare)) WITH ORDINALITY
             AS u(id, token, version, forced, status, run, owner, lease, due_at, seen, events, awaiting, result,
                  code, opened_at, not_before, reminder, deaths, alone_deaths, deadline, priority, attributes, state, progress,
                  error, message_offered, n)
        WHERE p.ctid = places[u.n] AND p.id = u.id AND p.token = u.token AND p.version = u.version
          AND (fits IS NULL OR fits[u.n]) AND u.n = abs(u.n);
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
            PERFORM perdure.offer_messages(records, rare, new_events, fits);
        END IF;
        IF consumed IS NOT NULL THEN
            PERFORM perdure.move_letters(records, consumed, fits);
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
        IF told IS NOT NULL THEN  -- the workers that held these rows are told that they have lost them
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

-- Write commits that also start children or send messages: all of it, or nothing of a commit that is not applied (law 3).
-- 1. Lock the rows that messages go to. A commit whose target is locked already is "blocked": then nothing at all is
--    written, and the client sends the batch again without it. Nothing waits for a lock, so no order of locks matters.
-- 2. Write the commits, then start the children and send the messages of those that were written now: a batch that is
--    sent again after an unknown outcome adds nothing (rule 5). Messages come after the commits: a parent and its child
--    may finish in one batch, and each row is changed by one statement at a time (rule 2).
CREATE OR REPLACE FUNCTION perdure.commit_outward(
    records perdure.commit_in[], rare perdure.commit_rare[], new_events perdure.event_in[], consumed perdure.consumed_in[],
    children perdure.start_in[], children_rare perdure.start_rare[], child_of int[], letters perdure.letter_in[],
    published uuid[],
    OUT now bigint, OUT inboxes int[], OUT odd int[], OUT verdicts text[], OUT blocked int[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    held uuid[];
BEGIN
    SELECT array_agg(l.id) INTO held
    FROM (
        SELECT p.id FROM (SELECT DISTINCT m.process FROM unnest(letters) AS m) AS u
        CROSS JOIN LATERAL (
            SELECT p.id FROM perdure.process p WHERE p.id = u.process FOR NO KEY UPDATE SKIP LOCKED) AS p
    ) AS l;
    SELECT array_agg(DISTINCT m.record) INTO blocked
    FROM unnest(letters) AS m
    WHERE (m.process = ANY (held)) IS NOT TRUE
      AND EXISTS (SELECT FROM perdure.process p WHERE p.id = m.process OFFSET 0);
    IF blocked IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT c.now, c.inboxes, c.odd, c.verdicts INTO now, inboxes, odd, verdicts
    FROM perdure.commit(records, rare, new_events, consumed, published) AS c;
    IF children IS NOT NULL THEN
        PERFORM perdure.start(array_agg(u.child ORDER BY u.n), array_agg(u.rare ORDER BY u.n), NULL, NULL, false, true)
        FROM (
            SELECT n, children[n] AS child, children_rare[n] AS rare
            FROM generate_subscripts(children, 1) AS n
            WHERE (child_of[n] = ANY (odd)) IS NOT TRUE) AS u
        HAVING count(*) > 0;
    END IF;
    IF letters IS NOT NULL THEN
        PERFORM perdure.send(array_agg(m.id ORDER BY m.n), array_agg(m.process ORDER BY m.n), array_agg(m.type ORDER BY m.n),
                             array_agg(m.name ORDER BY m.n), array_agg(m.payload ORDER BY m.n),
                             array_agg(m.key ORDER BY m.n), array_agg(m.sender ORDER BY m.n))
        FROM unnest(letters) WITH ORDINALITY AS m(record, id, process, type, name, payload, key, sender, n)
        WHERE (m.record = ANY (odd)) IS NOT TRUE
        HAVING count(*) > 0;
        PERFORM perdure.tell_freed(m.name)  -- the answer of a task is named after its kind
        FROM (SELECT DISTINCT l.name FROM unnest(letters) AS l WHERE starts_with(l.name, '@')) AS m;
    END IF;
END
$$;

-- Write commits of which some bring a letter that was never sent, and that their turns have received: it is put into the
-- inbox by the commit, as consumed. Its number was given before: a commit whose inbox does not end just before it, or has
-- its key, is "late", and one whose row is locked "blocked"; then nothing at all is written, and the client sends the batch
-- again without them. A commit that was written before is neither, and its letter is there.
CREATE OR REPLACE FUNCTION perdure.commit_bringing(
    records perdure.commit_in[], rare perdure.commit_rare[], new_events perdure.event_in[], consumed perdure.consumed_in[],
    children perdure.start_in[], children_rare perdure.start_rare[], child_of int[], letters perdure.letter_in[],
    published uuid[], brought perdure.letter_in[], received perdure.consumed_in[],
    OUT now bigint, OUT inboxes int[], OUT odd int[], OUT verdicts text[], OUT blocked int[], OUT late int[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    held int[];
BEGIN
    SELECT array_agg(l.record), array_agg(l.record) FILTER (WHERE l.late), array_agg(l.inbox) FILTER (WHERE l.late)
    INTO held, late, inboxes
    FROM (
        SELECT r.record, p.inbox,
               p.token = (records[r.record]).token AND p.version = (records[r.record]).version
               AND (p.inbox <> r.number - 1 OR EXISTS (
                   SELECT FROM perdure.message m
                   WHERE m.key = r.key AND (m.key, m.process) >= (r.key, r.process)
                     AND (m.key, m.process) <= (r.key, r.process) OFFSET 0)) AS late
        FROM ROWS FROM (unnest(brought), unnest(received))
             AS r(same_record, id, process, type, name, payload, key, sender, record, number, event)
        CROSS JOIN LATERAL (
            SELECT p.token, p.version, p.inbox FROM perdure.process p WHERE p.id = (records[r.record]).id
            FOR NO KEY UPDATE SKIP LOCKED) AS p
    ) AS l;
    IF coalesce(cardinality(held), 0) < cardinality(received) THEN
        SELECT array_agg(r.record) INTO blocked
        FROM unnest(received) AS r
        WHERE (r.record = ANY (held)) IS NOT TRUE
          AND EXISTS (SELECT FROM perdure.process p WHERE p.id = (records[r.record]).id OFFSET 0);
    END IF;
    IF blocked IS NOT NULL OR late IS NOT NULL THEN
        SELECT perdure.micros(k.t) INTO now FROM perdure.present k;
        RETURN;
    ELSIF children IS NULL AND letters IS NULL THEN
        SELECT c.now, c.inboxes, c.odd, c.verdicts INTO now, inboxes, odd, verdicts
        FROM perdure.commit(records, rare, new_events, consumed, published) AS c;
    ELSE
        SELECT c.now, c.inboxes, c.odd, c.verdicts, c.blocked INTO now, inboxes, odd, verdicts, blocked
        FROM perdure.commit_outward(records, rare, new_events, consumed, children, children_rare, child_of, letters,
                                    published) AS c;
        IF blocked IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO perdure.message
        (process, id, at, number, type, name, key, sender, payload, consumed_run, consumed_by)
    SELECT u.process, u.id, perdure.instant(now), u.number, u.type, u.name, u.key, u.sender, u.payload,
           (records[u.record]).run, u.event
    FROM ROWS FROM (unnest(brought), unnest(received))
         AS u(record, id, process, type, name, payload, key, sender, same_record, number, event)
    WHERE odd IS NULL OR (u.record = ANY (odd)) IS NOT TRUE;
END
$$;
