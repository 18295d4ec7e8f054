-- New processes: a batch, with first messages, and those of a login that may start and do nothing else.

-- Why starts were not created: the incarnation has ended, the start was sent again, its key is taken (rules 3 and 24), or a
-- worker has begun it although its kind has limits.
-- Runs in a statement of its own after the insert, so that the row behind a conflict is seen.
CREATE OR REPLACE FUNCTION perdure.start_existing(
    records perdure.start_in[], gone uuid[], fresh boolean[], t timestamptz
) RETURNS TABLE (n int, verdict text, id uuid, inbox int) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT r.n, CASE WHEN same.id IS NOT NULL OR kept.process = r.id THEN 'created'
                     WHEN other.input = r.input OR kept.digest = sha256(r.input) THEN 'already exists'
                     WHEN other.id IS NOT NULL OR kept.process IS NOT NULL THEN 'conflict'
                     WHEN r.owner = ANY (gone) THEN 'refused'
                     WHEN r.token > 0 AND perdure.kind_limited(r.kind) THEN 'limited' END,
           coalesce(same.id, other.id, kept.process, r.id),
           coalesce(same.inbox, other.inbox, 0)
    FROM generate_subscripts(records, 1) AS place(n)
    CROSS JOIN LATERAL (SELECT place.n, (records[place.n]).*) AS r
    LEFT JOIN LATERAL (SELECT p.id, p.inbox FROM perdure.process p WHERE p.id = r.id LIMIT 1) AS same ON true
    LEFT JOIN LATERAL (
        SELECT p.id, p.inbox, p.input FROM perdure.process p
        WHERE p.kind = r.kind AND p.key = r.key AND same.id IS NULL LIMIT 1) AS other ON true
    LEFT JOIN LATERAL (
        SELECT k.process, k.digest FROM perdure.key_kept k
        WHERE k.kind = r.kind AND k.key = r.key AND (k.due_at > t) IS TRUE AND other.id IS NULL AND same.id IS NULL
        LIMIT 1) AS kept ON true
    WHERE NOT fresh[r.n];
    IF EXISTS (
        SELECT FROM generate_subscripts(records, 1) AS place(n)
        CROSS JOIN LATERAL (SELECT place.n, (records[place.n]).*) AS r
        WHERE NOT fresh[r.n] AND (r.owner = ANY (gone)) IS NOT TRUE AND NOT (r.token > 0 AND perdure.kind_limited(r.kind))
          AND NOT EXISTS (SELECT FROM perdure.process p WHERE p.id = r.id OFFSET 0)
          AND NOT EXISTS (SELECT FROM perdure.process p WHERE p.kind = r.kind AND p.key = r.key OFFSET 0)
          AND NOT EXISTS (
              SELECT FROM perdure.key_kept k WHERE k.kind = r.kind AND k.key = r.key AND (k.due_at > t) IS TRUE OFFSET 0)
    ) THEN
        -- The row in the way was pruned between two statements: begin again.
        RAISE serialization_failure;
    END IF;
END
$$;

-- Which starts have a key that a guest (a start in a caller's open transaction) has taken: to insert them would mean to
-- wait for the end of that transaction, and all other writes would wait with them (rule 6). A guest locks the table gate,
-- which strangers cannot lock, and for each of its keys an advisory lock: the upper half is random, so that nobody can take
-- it first, the lower half is the hash of that and the key. Advisory locks of sessions without the gate mean nothing.
CREATE OR REPLACE FUNCTION perdure.start_guarded(records perdure.start_in[]) RETURNS int[]
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH guest AS MATERIALIZED (
        SELECT DISTINCT g.pid FROM pg_locks g
        WHERE g.locktype = 'relation' AND g.relation = 'perdure.gate'::regclass AND g.mode = 'ShareLock' AND g.granted
          AND g.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND g.pid <> pg_backend_pid()
    ), mark AS MATERIALIZED (
        SELECT l.classid, l.objid FROM guest JOIN pg_locks l ON l.pid = guest.pid
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
    )
    SELECT array_agg(u.n::int ORDER BY u.n)
    FROM unnest(records) WITH ORDINALITY AS u(id, kind, key, input, version, token, owner, lease, due_at, events,
                                              awaiting, code, created_at, opened_at, n)
    WHERE u.key IS NOT NULL AND EXISTS (
        SELECT FROM mark m WHERE m.objid = hashtext(m.classid::text || ' ' || u.kind || ' ' || u.key)::oid)
$$;

-- Store new processes with their first events; what exists already is answered, not changed (rules 3, 11, 16, 24).
-- Only answers other than "created" are listed. The client sends records with keys in the order of their keys, so that
-- two starters with crossed keys take turns and do not deadlock.
CREATE OR REPLACE FUNCTION perdure.start(
    records perdure.start_in[], rare perdure.start_rare[], workers uuid[], new_events perdure.event_in[], keyed boolean,
    unowned boolean,
    OUT now bigint, OUT odd int[], OUT verdicts text[], OUT ids uuid[], OUT inboxes int[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
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
    IF keyed THEN
        BEGIN
            LOCK TABLE perdure.gate IN ROW EXCLUSIVE MODE NOWAIT;  -- guests wait for this batch; fails if one has the gate
        EXCEPTION WHEN lock_not_available THEN
            held := perdure.start_guarded(records);
        END;
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
    WHERE (gone IS NULL OR u.owner IS NULL OR u.owner <> ALL (gone))
      AND (u.token = 0 OR u.share IS NOT NULL OR NOT EXISTS (
          SELECT FROM perdure.queue q
          WHERE q.name = ' kind ' || u.kind AND (q.concurrency IS NOT NULL OR q.rate IS NOT NULL)))
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
        -- These were neither created nor removed.
        DELETE FROM perdure.stream_inlet i WHERE i.process = ANY (kept) AND i.xmin = pg_current_xact_id()::xid;
        DELETE FROM perdure.stream_gone g WHERE g.process = ANY (kept) AND g.xmin = pg_current_xact_id()::xid;
    END IF;
    IF created <> cardinality(records) OR kept IS NOT NULL THEN
        SELECT array_agg(u.first AND p.id IS NOT NULL ORDER BY u.n) INTO fresh
        FROM (SELECT r.id, r.n, row_number() OVER (PARTITION BY r.id ORDER BY r.n) = 1 AS first
              FROM unnest(records) WITH ORDINALITY AS r(id, kind, key, input, version, token, owner, lease, due_at,
                                                        events, awaiting, code, created_at, opened_at, n)) AS u
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

-- Start all but those whose keys guests hold; these are answered "busy", and the client tries again.
CREATE OR REPLACE FUNCTION perdure.start_unguarded(
    records perdure.start_in[], rare perdure.start_rare[], workers uuid[], new_events perdure.event_in[],
    unowned boolean, held int[],
    OUT now bigint, OUT odd int[], OUT verdicts text[], OUT ids uuid[], OUT inboxes int[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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

-- The messages that the first events of new processes have received: a fork brings both. Rare: whole inboxes are counted.
CREATE OR REPLACE FUNCTION perdure.start_receiving(
    records perdure.start_in[], rare perdure.start_rare[], new_events perdure.event_in[], odd int[]
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    forks uuid[];
BEGIN
    SELECT array_agg(DISTINCT (records[e.record]).id) INTO forks FROM unnest(new_events) AS e
    WHERE e.message IS NOT NULL AND (e.record = ANY (odd)) IS NOT TRUE;
    IF forks IS NULL THEN
        RETURN;
    END IF;
    UPDATE perdure.message m SET consumed_run = coalesce((rare[x.record]).run, 1), consumed_by = x.number
    FROM (
        SELECT e.record, e.number, l.place FROM unnest(new_events) AS e
        CROSS JOIN LATERAL (
            SELECT m.ctid AS place FROM perdure.message m
            WHERE m.process = (records[e.record]).id AND m.number = e.message OFFSET 0) AS l
        WHERE e.message IS NOT NULL AND (e.record = ANY (odd)) IS NOT TRUE AND e.record = abs(e.record)) AS x
    WHERE m.ctid = x.place;
    UPDATE perdure.process p SET waiting = found.letters, waiting_bytes = found.bytes
    FROM unnest(forks) AS f(id)
    CROSS JOIN LATERAL (
        SELECT count(*)::int AS letters, coalesce(sum(octet_length(m.payload)), 0) AS bytes FROM perdure.message m
        WHERE m.process = f.id AND m.consumed_by IS NULL AND m.type IN (1, 7)) AS found
    WHERE p.id = f.id;
END
$$;

-- Store new processes together with the first messages to them; a start that is not created now sends nothing. Messages
-- know their start by its number. The new rows are locked by being new, so that no message can be "busy".
CREATE OR REPLACE FUNCTION perdure.start_telling(
    records perdure.start_in[], rare perdure.start_rare[], workers uuid[], new_events perdure.event_in[], keyed boolean,
    unowned boolean, letters perdure.letter_in[],
    OUT now bigint, OUT odd int[], OUT verdicts text[], OUT ids uuid[], OUT inboxes int[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    SELECT s.now, s.odd, s.verdicts, s.ids, s.inboxes INTO now, odd, verdicts, ids, inboxes
    FROM perdure.start(records, rare, workers, new_events, keyed, unowned) AS s;
    PERFORM perdure.send(array_agg(m.id ORDER BY m.n), array_agg(m.process ORDER BY m.n), array_agg(m.type ORDER BY m.n),
                         array_agg(m.name ORDER BY m.n), array_agg(m.payload ORDER BY m.n),
                         array_agg(m.key ORDER BY m.n), array_agg(m.sender ORDER BY m.n))
    FROM unnest(letters) WITH ORDINALITY AS m(record, id, process, type, name, payload, key, sender, n)
    WHERE (m.record = ANY (odd)) IS NOT TRUE
    HAVING count(*) > 0;
    IF new_events IS NOT NULL THEN
        PERFORM perdure.start_receiving(records, rare, new_events, odd);
    END IF;
END
$$;

-- Start processes for a login that may start and do nothing else: they have no owner, no history and no parent, are no
-- tasks, and bring no messages but signals. Everything else is for workers.
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
        RAISE insufficient_privilege USING MESSAGE = 'this login may only start new processes, which no worker owns';
    END IF;
    IF letters IS NULL THEN
        SELECT * INTO now, odd, verdicts, ids, inboxes FROM perdure.start(records, rare, NULL, NULL, keyed, true);
    ELSE
        SELECT * INTO now, odd, verdicts, ids, inboxes
        FROM perdure.start_telling(records, rare, NULL, NULL, keyed, true, letters);
    END IF;
END
$$;
