-- Write one commit: what an idle system does most, at half the cost of a batch of one. Whatever is not as usual (the
-- fence does not fit, the row is locked, a timer is early, a message unheard) is left to perdure.commit, which judges.
CREATE OR REPLACE FUNCTION perdure.commit_alone(
    one perdure.commit_in, rare perdure.commit_rare, new_events perdure.event_in[], consumed perdure.consumed_in[],
    published uuid[],
    OUT now bigint, OUT inboxes int[], OUT odd int[], OUT verdicts text[]
) LANGUAGE plpgsql
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
        changed_at = t, seen = one.seen, events = one.events, awaiting = one.awaiting, result = one.result,
        code = one.code, opened_at = perdure.instant(one.opened_at),
        deaths = coalesce(rare.deaths, 0), alone_deaths = coalesce(rare.alone_deaths, 0),
        deadline = perdure.instant(rare.deadline), priority = coalesce(rare.priority, 4),
        attributes = CASE WHEN rare.attributes IS NULL THEN p.attributes ELSE nullif(rare.attributes, 'null')::jsonb END,
        state = rare.state, progress = rare.progress, error = rare.error
    WHERE p.ctid = place;
    IF new_events IS NOT NULL THEN
        INSERT INTO perdure.event
            (process, at, run, number, turn, token, version, message, type, place, name, digest, payload)
        SELECT one.id, perdure.instant(e.at), one.run, e.number, e.turn, one.token + one.forced, one.version + 1,
               e.message, e.type, e.place, e.name, e.digest, e.payload
        FROM unnest(new_events) AS e;
    END IF;
    IF consumed IS NOT NULL THEN
        UPDATE perdure.message m SET consumed_run = one.run, consumed_by = x.event
        FROM (
            SELECT u.event, l.place FROM unnest(consumed) AS u
            CROSS JOIN LATERAL (
                SELECT m.ctid AS place FROM perdure.message m
                WHERE m.process = one.id AND m.number = u.number AND m.consumed_by IS NULL OFFSET 0) AS l) AS x
        WHERE m.ctid = x.place;
    END IF;
    IF one.status = 'running' AND one.lease = 0 AND (one.due_at <= now OR messages > one.seen) THEN
        PERFORM perdure.tell_due(ARRAY[its_kind], NULL);
    END IF;
    IF elsewhere AND one.status <> 'running' THEN
        PERFORM pg_notify('perdure_done', encode(substr(uuid_send(one.id), 12), 'base64'));
    END IF;
    IF lost THEN  -- whoever had it hears that he has lost it
        PERFORM pg_notify('perdure_told', one.id::text);
    END IF;
    IF published IS NOT NULL THEN
        PERFORM perdure.tell_published(published);
    END IF;
    IF messages > 0 THEN
        inboxes := ARRAY[messages];
    END IF;
END
$$;
