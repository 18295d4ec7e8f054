-- One commit alone, where all is as usual.

-- Write one commit: what an idle system does most, at half the cost of a batch of one. Any unusual case (the fence does
-- not fit, the row is locked, a timer is early, a message unheard) is left to perdure.commit.
CREATE OR REPLACE FUNCTION perdure.commit_alone(
    one perdure.commit_in, rare perdure.commit_rare, new_events perdure.event_in[], consumed perdure.consumed_in[],
    published uuid[],
    OUT now bigint, OUT inboxes int[], OUT odd int[], OUT verdicts text[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t        timestamptz;
    place    tid;
    messages int;
    elsewhere boolean;
    lost     boolean;
    its_kind text;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);  -- what is accepted is on disk, whatever the server says
    END IF;
    SELECT k.t INTO t FROM perdure.present k;
    now := perdure.micros(t);
    SELECT p.ctid, p.inbox, p.created_at IS DISTINCT FROM p.opened_at, one.forced > 0 AND p.owner IS NOT NULL,
           p.kind
    INTO place, messages, elsewhere, lost, its_kind
    FROM perdure.process p
    WHERE p.id = one.id AND p.token = one.token AND p.version = one.version
    FOR NO KEY UPDATE SKIP LOCKED;
    IF place IS NULL OR one.not_before > now
       OR (messages > one.seen AND one.forced = 0 AND one.status >= 'completed') THEN
        SELECT c.now, c.inboxes, c.odd, c.verdicts INTO now, inboxes, odd, verdicts
        FROM perdure.commit(ARRAY[one], CASE WHEN NOT (rare IS NULL) THEN ARRAY[rare] END, new_events, consumed,
                            published) AS c;
        RETURN;
    END IF;
    UPDATE perdure.process p SET
        status = one.status,
        version = p.version + 1,
        token = p.token + one.forced,
        run = one.run,
        owner = CASE WHEN one.lease > 0 THEN one.owner END,
        due_at = CASE WHEN one.lease > 0 THEN perdure.instant(now + one.lease)
                      WHEN one.status >= 'completed' THEN NULL
                      WHEN one.status = 'running' AND p.inbox > one.seen THEN t
                      ELSE perdure.instant(one.due_at) END,
        reminder = rare.reminder IS TRUE AND one.lease = 0 AND NOT (one.status = 'running' AND p.inbox > one.seen),
        -- a reminder changes nothing but the next one's time
        changed_at = CASE WHEN rare.reminder IS TRUE AND p.reminder AND one.lease = 0 AND one.events = p.events
                               AND one.status = p.status AND (one.status <> 'running' OR p.inbox = p.seen) THEN p.changed_at ELSE t END,
        -- only a letter that the commit itself brings can have been seen before it was there
        inbox = greatest(p.inbox, one.seen), seen = one.seen, events = one.events, awaiting = one.awaiting, result = one.result,
        code = one.code, opened_at = perdure.instant(one.opened_at),
        deaths = coalesce(rare.deaths, 0), alone_deaths = coalesce(rare.alone_deaths, 0),
        deadline = perdure.instant(rare.deadline), priority = coalesce(rare.priority, 4),
        attributes = CASE WHEN rare.attributes IS NULL THEN p.attributes ELSE nullif(rare.attributes, 'null')::jsonb END,
        state = rare.state, error = rare.error,
        share = CASE WHEN one.status >= 'completed' THEN nullif(p.share, ' place') ELSE p.share END,
        progress = CASE WHEN rare.progress = '' THEN p.progress ELSE rare.progress END
    WHERE p.ctid = place;
    IF new_events IS NOT NULL THEN
        INSERT INTO perdure.event
            (process, at, run, number, turn, token, version, message, type, place, name, digest, payload)
        SELECT one.id, perdure.instant(e.at), one.run, e.number, e.turn, one.token + one.forced, one.version + 1,
               e.message, e.type, e.place, e.name, e.digest, e.payload
        FROM unnest(new_events) AS e;
    END IF;
    IF consumed IS NOT NULL THEN
        PERFORM perdure.move_letters(ARRAY[one], consumed, NULL);
    END IF;
    IF one.status = 'running' AND one.lease = 0 AND (one.due_at <= now OR messages > one.seen) THEN
        PERFORM perdure.tell_due(ARRAY[its_kind], NULL);
    END IF;
    IF elsewhere AND one.status <> 'running' THEN
        PERFORM pg_notify('perdure_done', encode(substr(uuid_send(one.id), 12), 'base64'));
    END IF;
    IF lost THEN  -- the worker that held it is told that it has lost it
        PERFORM pg_notify('perdure_told', one.id::text);
    END IF;
    IF published IS NOT NULL THEN
        PERFORM perdure.tell_published(published);
    END IF;
    IF messages > 0 OR one.seen > 0 THEN
        inboxes := ARRAY[greatest(messages, one.seen)];
    END IF;
END
$$;

-- Write one commit that also starts children or sends messages, at half the cost of a batch of one: the fence and all
-- that the process writes for itself are perdure.commit_alone's. Unusual cases are left to perdure.commit_outward.
CREATE OR REPLACE FUNCTION perdure.commit_outward_alone(
    one perdure.commit_in, rare perdure.commit_rare, new_events perdure.event_in[], consumed perdure.consumed_in[],
    children perdure.start_in[], children_rare perdure.start_rare[], letters perdure.letter_in[], published uuid[],
    OUT now bigint, OUT inboxes int[], OUT odd int[], OUT verdicts text[], OUT blocked int[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    sent perdure.letter_in := letters[1];
BEGIN
    IF cardinality(letters) = 1 THEN
        PERFORM FROM perdure.process p WHERE p.id = sent.process FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    IF cardinality(letters) > 1 OR (letters IS NOT NULL AND NOT FOUND) THEN
        SELECT c.now, c.inboxes, c.odd, c.verdicts, c.blocked INTO now, inboxes, odd, verdicts, blocked
        FROM perdure.commit_outward(
            ARRAY[one], CASE WHEN NOT (rare IS NULL) THEN ARRAY[rare] END, new_events, consumed, children, children_rare,
            CASE WHEN children IS NOT NULL THEN array_fill(1, ARRAY[cardinality(children)]) END, letters, published) AS c;
        RETURN;
    END IF;
    SELECT c.now, c.inboxes, c.odd, c.verdicts INTO now, inboxes, odd, verdicts
    FROM perdure.commit_alone(one, rare, new_events, consumed, published) AS c;
    IF odd IS NOT NULL THEN
        RETURN;  -- not written now; if it was written before, its children and messages were sent then
    END IF;
    IF children IS NOT NULL THEN
        PERFORM perdure.start(children, children_rare, NULL, NULL, false, true);
    END IF;
    IF letters IS NOT NULL THEN
        PERFORM perdure.send_alone(sent.id, sent.process, sent.type, sent.name, sent.payload, sent.key, sent.sender);
        IF starts_with(sent.name, '@') THEN
            PERFORM perdure.tell_freed(sent.name);  -- the answer of a task is named after its kind
        END IF;
    END IF;
END
$$;

-- Write one commit that brings a letter which was never sent, at half the cost of a batch of one. Unusual cases are left to
-- perdure.commit_bringing.
CREATE OR REPLACE FUNCTION perdure.commit_bringing_alone(
    one perdure.commit_in, rare perdure.commit_rare, new_events perdure.event_in[], published uuid[],
    brought perdure.letter_in, received perdure.consumed_in,
    OUT now bigint, OUT inboxes int[], OUT odd int[], OUT verdicts text[], OUT blocked int[], OUT late int[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM perdure.process p
    WHERE p.id = one.id AND p.inbox = received.number - 1 AND p.token = one.token AND p.version = one.version
    FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND OR EXISTS (
        SELECT FROM perdure.message m
        WHERE m.key = brought.key AND (m.key, m.process) >= (brought.key, one.id)
          AND (m.key, m.process) <= (brought.key, one.id) OFFSET 0
    ) THEN
        SELECT c.now, c.inboxes, c.odd, c.verdicts, c.blocked, c.late INTO now, inboxes, odd, verdicts, blocked, late
        FROM perdure.commit_bringing(
            ARRAY[one], CASE WHEN NOT (rare IS NULL) THEN ARRAY[rare] END, new_events, NULL, NULL, NULL, NULL, NULL,
            published, ARRAY[brought], ARRAY[received]) AS c;
        RETURN;
    END IF;
    SELECT c.now, c.inboxes, c.odd, c.verdicts INTO now, inboxes, odd, verdicts
    FROM perdure.commit_alone(one, rare, new_events, NULL, published) AS c;
    IF odd IS NULL THEN
        INSERT INTO perdure.message
            (process, id, at, number, type, name, key, sender, payload, consumed_run, consumed_by)
        VALUES (one.id, brought.id, perdure.instant(now), received.number, brought.type, brought.name, brought.key,
                brought.sender, brought.payload, one.run, received.event);
    END IF;
END
$$;
