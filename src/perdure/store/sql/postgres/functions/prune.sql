-- What is removed: by a person or by the process itself at once, by retention after a time.

-- Write one commit, and in its transaction remove the process, or (unless ``whole``) only its key. A process that is not
-- there any more was removed before.
CREATE OR REPLACE FUNCTION perdure.commit_and_remove(
    records perdure.commit_in[], rare perdure.commit_rare[], new_events perdure.event_in[], consumed perdure.consumed_in[],
    children perdure.start_in[], children_rare perdure.start_rare[], child_of int[], letters perdure.letter_in[],
    published uuid[], whole boolean,
    OUT now bigint, OUT inboxes int[], OUT odd int[], OUT verdicts text[], OUT blocked int[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    one uuid := (records[1]).id;
BEGIN
    SELECT c.now, c.inboxes, c.odd, c.verdicts, c.blocked INTO now, inboxes, odd, verdicts, blocked
    FROM perdure.commit_outward(records, rare, new_events, consumed, children, children_rare, child_of, letters,
                                published) AS c;
    IF blocked IS NOT NULL THEN
        RETURN;
    ELSIF odd IS NULL AND whole THEN
        DELETE FROM perdure.message m WHERE m.process = one;
        DELETE FROM perdure.event e WHERE e.process = one;
        DELETE FROM perdure.process p WHERE p.id = one;
    ELSIF odd IS NULL THEN
        UPDATE perdure.process p SET key = NULL WHERE p.id = one;
    ELSIF whole AND NOT EXISTS (SELECT FROM perdure.process p WHERE p.id = one OFFSET 0) THEN
        odd := NULL;
        verdicts := NULL;
    ELSIF whole AND verdicts = ARRAY['applied'] THEN  -- another commit has brought the row to this token and version
        verdicts := ARRAY['refused'];
    END IF;
END
$$;

-- Remove processes that ended long ago with all that belongs to them; their keys stay for a while (rule 24). None is removed
-- while a note is younger than a day that says that workers remove processes by rules. Those that ended first go first, as
-- long as they have no more than so many events together. One that has more by itself goes alone, and its former runs before
-- it, so many events at a time. "more" says that some are left.
-- It runs seldom and removes much, so it is planned anew each time for the sizes of that time.
CREATE OR REPLACE FUNCTION perdure.prune_portion(
    finished bigint, keys bigint, most int, events int, OUT processes int, OUT forgotten int, OUT more boolean
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_custom_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t     timestamptz := perdure.now();
    one   record;
    old   uuid[] := '{}';
    size  bigint;
    total bigint := 0;
BEGIN
    more := false;
    FOR one IN
        SELECT p.id, p.version, p.run, p.events, coalesce(p.first_run, 1) + 1 < p.run AS former FROM perdure.process p
        WHERE p.due_at IS NULL AND p.changed_at <= t - finished * interval '1 microsecond'
          AND NOT EXISTS (SELECT FROM perdure.note n WHERE n.name = 'retention' AND n.changed_at > t - interval '1 day')
        ORDER BY p.changed_at, p.id LIMIT most FOR UPDATE SKIP LOCKED
    LOOP
        size := one.events;
        IF one.run > 1 THEN
            SELECT count(*) INTO size FROM (
                SELECT FROM perdure.event e WHERE e.process = one.id LIMIT prune_portion.events + 1) AS e;
        END IF;
        total := total + size;
        more := total > prune_portion.events AND cardinality(old) > 0;
        EXIT WHEN more;
        IF size > prune_portion.events AND one.former THEN
            PERFORM perdure.remove_runs(one.id, one.version, prune_portion.events);
            processes := 0;
            forgotten := 0;
            more := true;
            RETURN;
        END IF;
        old := old || one.id;
    END LOOP;
    -- Of none the planner may choose any index, since an empty list implies the condition of each: it read all of one.
    IF cardinality(old) > 0 THEN
        INSERT INTO perdure.key_kept (kind, key, process, due_at, digest)
        SELECT p.kind, p.key, p.id, t + keys * interval '1 microsecond', sha256(p.input)
        FROM perdure.process p WHERE p.id = ANY (old) AND p.key IS NOT NULL
        ON CONFLICT (kind, key) DO UPDATE
            SET process = excluded.process, due_at = excluded.due_at, digest = excluded.digest;
        DELETE FROM perdure.message m WHERE m.process = ANY (old);
        DELETE FROM perdure.event e WHERE e.process = ANY (old);
        DELETE FROM perdure.process p WHERE p.id = ANY (old);
    END IF;
    processes := cardinality(old);
    -- MATERIALIZED: a nested loop would run the limit again for every key and remove more than asked for (rule 8).
    WITH over AS MATERIALIZED (
        SELECT e.kind, e.key FROM perdure.key_kept e
        WHERE e.due_at <= t ORDER BY e.due_at, e.kind, e.key LIMIT most FOR UPDATE SKIP LOCKED
    )
    DELETE FROM perdure.key_kept k USING over WHERE k.kind = over.kind AND k.key = over.key;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    DELETE FROM perdure.worker w
    WHERE w.ended_at <= t - interval '1 day' AND NOT EXISTS (SELECT FROM perdure.process p WHERE p.owner = w.id OFFSET 0);
END
$$;

-- The same for workers of the release before: one portion. See perdure.prune_portion.
CREATE OR REPLACE FUNCTION perdure.prune(finished bigint, keys bigint, most int, OUT processes int, OUT forgotten int)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    SELECT r.processes, r.forgotten INTO processes, forgotten FROM perdure.prune_portion(finished, keys, most, 3000) AS r;
END
$$;

-- Remove those of the given processes that have ended and are still at their version, with all that belongs to them; their
-- keys stay for a while. One that is locked is left to the next round. The answer is how many were removed.
CREATE OR REPLACE FUNCTION perdure.remove_ended(ids uuid[], versions int[], keys bigint, OUT processes int)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t   timestamptz := perdure.now();
    old uuid[];
BEGIN
    SELECT array_agg(l.id) INTO old
    FROM (SELECT p.id FROM unnest(ids, versions) AS g(id, version)
          CROSS JOIN LATERAL (
              SELECT p.id FROM perdure.process p
              WHERE p.id = g.id AND p.version = g.version AND p.due_at IS NULL FOR UPDATE SKIP LOCKED) AS p) AS l;
    INSERT INTO perdure.key_kept (kind, key, process, due_at, digest)
    SELECT p.kind, p.key, p.id, t + keys * interval '1 microsecond', sha256(p.input)
    FROM perdure.process p WHERE p.id = ANY (old) AND p.key IS NOT NULL
    ON CONFLICT (kind, key) DO UPDATE
        SET process = excluded.process, due_at = excluded.due_at, digest = excluded.digest;
    DELETE FROM perdure.message m WHERE m.process = ANY (old);
    DELETE FROM perdure.event e WHERE e.process = ANY (old);
    DELETE FROM perdure.process p WHERE p.id = ANY (old);
    processes := coalesce(cardinality(old), 0);
END
$$;

-- Remove former runs that ended long ago, of a page of unfinished processes after a given one, and at most so many events.
-- The present run and the one before it always stay. Answers to calls, and messages with a key of their sender, stay for
-- as long as keys do; messages that the oldest remaining run has taken over stay with it. A process that is locked is left
-- to the next round. The answer is how many runs were removed or begun, and after which process the next page begins.
CREATE OR REPLACE FUNCTION perdure.prune_runs(
    finished bigint, keys bigint, behind uuid, most int, events int, OUT runs int, OUT place uuid
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t      timestamptz := perdure.now();
    over   timestamptz := t - finished * interval '1 microsecond';
    known  timestamptz := t - greatest(finished, keys) * interval '1 microsecond';
    one    record;
    first  int;
    last   int;
    gone   int;
    page   int := 0;
BEGIN
    runs := 0;
    FOR one IN
        SELECT p.id, coalesce(p.first_run, 1) AS first, p.run FROM perdure.process p
        WHERE p.run > 2 AND p.due_at IS NOT NULL AND (behind IS NULL OR p.id > behind) ORDER BY p.id LIMIT most
    LOOP
        page := page + 1;
        IF NOT EXISTS (
            SELECT FROM perdure.event e
            WHERE e.process = one.id AND e.run = one.first + 1 AND e.number = 1 AND e.at <= over AND one.first + 1 < one.run
        ) THEN
            place := one.id;
            CONTINUE;
        END IF;
        SELECT coalesce(p.first_run, 1), p.run INTO first, last FROM perdure.process p
        WHERE p.id = one.id AND p.due_at IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            place := one.id;
            CONTINUE;
        END IF;
        LOOP
            EXIT WHEN events <= 0 OR first + 1 >= last OR NOT EXISTS (
                SELECT FROM perdure.event e
                WHERE e.process = one.id AND e.run = first + 1 AND e.number = 1 AND e.at <= over);
            DELETE FROM perdure.event e WHERE e.process = one.id AND e.run = first AND e.number = ANY (ARRAY(
                SELECT o.number FROM perdure.event o
                WHERE o.process = one.id AND o.run = first AND (o.type NOT IN (38, 39) OR o.at <= known)
                ORDER BY o.number LIMIT events));
            GET DIAGNOSTICS gone = ROW_COUNT;
            runs := runs + 1;
            events := events - greatest(gone, 1);
            EXIT WHEN events <= 0;
            first := first + 1;
        END LOOP;
        UPDATE perdure.process p SET first_run = first WHERE p.id = one.id AND first > coalesce(p.first_run, 1);
        IF FOUND THEN
            DELETE FROM perdure.message m
            WHERE m.process = one.id AND m.consumed_run < first AND m.at <= over AND (m.key IS NULL OR m.at <= known)
              AND m.number <> ALL (ARRAY(
                SELECT e.message FROM perdure.event e
                WHERE e.process = one.id AND e.run = first AND e.message IS NOT NULL));
            DELETE FROM perdure.event e
            WHERE e.process = one.id AND e.run < first AND e.type IN (38, 39) AND e.at <= known;
        END IF;
        IF events <= 0 THEN  -- more may be left of this one
            RETURN;
        END IF;
        place := one.id;
    END LOOP;
    IF page < most THEN
        place := NULL;
    END IF;
END
$$;

-- Remove a portion of the former runs of a process that is about to go, whatever their age; of one that is no longer at the
-- given version, none. The answer is how many were removed or begun.
CREATE OR REPLACE FUNCTION perdure.remove_runs(one uuid, expected int, events int, OUT runs int)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    most  int := events;
    first int;
    last  int;
    gone  int;
BEGIN
    runs := 0;
    SELECT coalesce(p.first_run, 1), p.run INTO first, last FROM perdure.process p
    WHERE p.id = one AND p.version = expected FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WHILE events > 0 AND first + 1 < last LOOP
        DELETE FROM perdure.event e WHERE e.process = one AND e.run = first AND e.number = ANY (ARRAY(
            SELECT o.number FROM perdure.event o WHERE o.process = one AND o.run = first
            ORDER BY o.number LIMIT events));
        GET DIAGNOSTICS gone = ROW_COUNT;
        runs := runs + 1;
        events := events - greatest(gone, 1);
        EXIT WHEN events <= 0;  -- more may be left of this one
        first := first + 1;
    END LOOP;
    UPDATE perdure.process p SET first_run = first WHERE p.id = one AND first > coalesce(p.first_run, 1);
    DELETE FROM perdure.message m WHERE m.process = one AND m.number = ANY (ARRAY(
        SELECT o.number FROM perdure.message o WHERE o.process = one AND o.consumed_run < first
        ORDER BY o.number LIMIT most));
END
$$;
