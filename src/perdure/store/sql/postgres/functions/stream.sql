-- Event streams: what the triggers write, the order in which it is read, and the streams themselves.

CREATE OR REPLACE VIEW perdure.event_stream_out AS
SELECT s.name, s.version, s.kinds, s.lifecycle, s.sink, s.position, s.owner, perdure.micros(s.until) AS until, s.failures,
       s.error, perdure.micros(s.changed_at) AS changed_at, s.who, s.why, s.origin, false AS removed
FROM perdure.event_stream s;

-- One row for all events that a commit has written to one run.
CREATE OR REPLACE FUNCTION perdure.stream_events() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO perdure.stream_inlet (process, at, run, first, last, type)
    SELECT w.process, max(w.at), w.run, min(w.number), max(w.number), 0 FROM written w
    GROUP BY w.process, w.run ORDER BY w.process, w.run;
    RETURN NULL;
END
$$;

-- A process was created; if its first turn is the worker's that has started it, it has begun too: then the row stands for
-- both, 101 and 102.
CREATE OR REPLACE FUNCTION perdure.stream_created() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO perdure.stream_inlet (process, at, run, first, last, type)
    SELECT w.id, w.created_at, w.run, 0, (w.opened_at IS NOT NULL)::int, 101 FROM written w;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION perdure.stream_begun() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO perdure.stream_inlet (process, at, run, first, last, type) VALUES (NEW.id, NEW.opened_at, NEW.run, 0, 0, 102);
    RETURN NULL;
END
$$;

-- Events are removed: keep those whose records some stream has not had. Their times say nothing of that: a fork, an import
-- and a run that is begun again commit events of long ago. Of a run the log has what came last, so a record that was not
-- had and begins before an event is that of the event, or of an earlier one. While a stream is being filled, all may be
-- wanted: who fills sees it still. OFFSET 0: each look is a seek, and no table of all that was not had is made.
CREATE OR REPLACE FUNCTION perdure.stream_keep() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    had bigint := (SELECT min(s.position) FROM perdure.event_stream s);
BEGIN
    IF had <> -4611686018427387904 AND NOT EXISTS (
        SELECT FROM (SELECT DISTINCT o.process, o.run FROM removed o) AS d
        WHERE EXISTS (SELECT FROM perdure.stream_record r
                      WHERE r.process = d.process AND r.type = 0 AND r.run = d.run AND (r.number > had) IS TRUE OFFSET 0)
           OR EXISTS (SELECT FROM perdure.stream_inlet i
                      WHERE i.process = d.process AND i.type = 0 AND i.run = d.run OFFSET 0)
    ) THEN  -- most often: one look for each run, and none for each event
        RETURN NULL;
    END IF;
    INSERT INTO perdure.stream_kept
        (process, at, run, number, turn, token, version, message, type, place, name, digest, payload)
    SELECT o.process, o.at, o.run, o.number, o.turn, o.token, o.version, o.message, o.type, o.place, o.name, o.digest, o.payload
    FROM removed o
    WHERE had = -4611686018427387904
       OR EXISTS (SELECT FROM perdure.stream_record r
                  WHERE r.process = o.process AND r.type = 0 AND r.run = o.run AND r.first <= o.number
                    AND (r.number > had) IS TRUE OFFSET 0)
       OR EXISTS (SELECT FROM perdure.stream_inlet i
                  WHERE i.process = o.process AND i.type = 0 AND i.run = o.run AND i.first <= o.number OFFSET 0)
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

-- The input stays for the record of the creation, if some stream has not had that.
CREATE OR REPLACE FUNCTION perdure.stream_removed() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    had bigint := (SELECT min(s.position) FROM perdure.event_stream s);
BEGIN
    INSERT INTO perdure.stream_gone (process, kind, key, code, input)
    SELECT o.id, o.kind, o.key, o.code, CASE WHEN had = -4611686018427387904
           OR EXISTS (SELECT FROM perdure.stream_record r
                      WHERE r.process = o.id AND r.type = 101 AND (r.number > had) IS TRUE OFFSET 0)
           OR EXISTS (SELECT FROM perdure.stream_inlet i WHERE i.process = o.id AND i.type = 101 OFFSET 0) THEN o.input END
    FROM removed o
    ON CONFLICT DO NOTHING;
    INSERT INTO perdure.stream_inlet (process, at, run, first, last, type)
    SELECT o.id, perdure.now(), o.run, 0, 0, 103 FROM removed o ORDER BY o.id;
    RETURN NULL;
END
$$;

-- From now on write down what happens, if nothing was written so far. Waits for the transactions that write now: what they
-- have written before, no trigger has seen.
CREATE OR REPLACE FUNCTION perdure.open_inlet() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = 'perdure.event'::regclass AND g.tgname = 'stream_events') THEN
        RETURN;
    END IF;
    LOCK TABLE perdure.process, perdure.event IN SHARE ROW EXCLUSIVE MODE;
    CREATE TRIGGER stream_created AFTER INSERT ON perdure.process REFERENCING NEW TABLE AS written
        FOR EACH STATEMENT EXECUTE FUNCTION perdure.stream_created();
    CREATE TRIGGER stream_begun AFTER UPDATE OF opened_at ON perdure.process
        FOR EACH ROW WHEN (OLD.opened_at IS NULL AND NEW.opened_at IS NOT NULL) EXECUTE FUNCTION perdure.stream_begun();
    CREATE TRIGGER stream_removed AFTER DELETE ON perdure.process REFERENCING OLD TABLE AS removed
        FOR EACH STATEMENT EXECUTE FUNCTION perdure.stream_removed();
    CREATE TRIGGER stream_events AFTER INSERT ON perdure.event REFERENCING NEW TABLE AS written
        FOR EACH STATEMENT EXECUTE FUNCTION perdure.stream_events();
    CREATE TRIGGER stream_keep AFTER DELETE ON perdure.event REFERENCING OLD TABLE AS removed
        FOR EACH STATEMENT EXECUTE FUNCTION perdure.stream_keep();
END
$$;

-- There is no stream any more: write nothing, and forget what was written. Everybody who writes waits for it, so it takes
-- as long for a long log as for a short one.
CREATE OR REPLACE FUNCTION perdure.close_inlet() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    LOCK TABLE perdure.process, perdure.event IN ACCESS EXCLUSIVE MODE;
    DROP TRIGGER IF EXISTS stream_created ON perdure.process;
    DROP TRIGGER IF EXISTS stream_begun ON perdure.process;
    DROP TRIGGER IF EXISTS stream_removed ON perdure.process;
    DROP TRIGGER IF EXISTS stream_events ON perdure.event;
    DROP TRIGGER IF EXISTS stream_keep ON perdure.event;
    TRUNCATE perdure.stream_inlet, perdure.stream_record, perdure.stream_kept, perdure.stream_gone;
END
$$;

-- Give what has become visible in the inlet its place in the one order. The lock comes first, and what it locks is read in a
-- later statement: of two that do this at once the second one sees what the first has left. Whatever is visible of a
-- process, its earlier rows are visible too, and have lower numbers: they are moved with it or were moved before.
CREATE OR REPLACE FUNCTION perdure.order_stream(most int, OUT reached bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    moved bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM perdure.stream_inlet) THEN
        SELECT h.number INTO reached FROM perdure.stream_head h;
        RETURN;
    END IF;
    SELECT h.number INTO reached FROM perdure.stream_head h FOR UPDATE;
    WITH page AS MATERIALIZED (
        SELECT i.* FROM perdure.stream_inlet i ORDER BY i.number LIMIT most
    ), taken AS (
        DELETE FROM perdure.stream_inlet i USING page p WHERE i.number = p.number
    )
    INSERT INTO perdure.stream_record (number, process, at, run, first, last, type)
    SELECT reached + sum(p.last - p.first + 1) OVER (ORDER BY p.number), p.process, p.at, p.run, p.first, p.last, p.type
    FROM page p;
    SELECT max(r.number) INTO moved FROM perdure.stream_record r;
    IF moved > reached THEN
        UPDATE perdure.stream_head h SET number = moved;
        reached := moved;
    END IF;
END
$$;

-- What stands behind a position: events of these kinds and types (null: all), at most so many positions and bytes of payloads.
-- The last row has no process: its place is how far the answer reaches, whether or not anything there was wanted.
CREATE OR REPLACE FUNCTION perdure.stream_page(behind bigint, most int, bytes int, kinds text[], types int[])
RETURNS TABLE (place bigint, process uuid, kind text, key text, code text, run int, number int, turn int, type int, at bigint,
               site text, name text, payload bytea, digest bytea, message int, token int, version int)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    reached bigint;
BEGIN
    SELECT o.reached INTO reached FROM perdure.order_stream(10000) AS o;
    RETURN QUERY
    WITH portion AS MATERIALIZED (
        SELECT r.* FROM perdure.stream_record r
        WHERE r.number > behind AND r.number <= reached  -- another reader may have put more behind it since
        ORDER BY r.number LIMIT most
    ), found AS MATERIALIZED (
        SELECT r.number - r.last + n.number AS place, r.process, coalesce(p.kind, g.kind) AS kind,
               coalesce(p.key, g.key) AS key, coalesce(p.code, g.code) AS code, r.run,
               CASE r.type WHEN 0 THEN n.number ELSE 0 END AS number,
               coalesce(e.turn, k.turn, 0) AS turn,
               (CASE WHEN r.type = 0 THEN coalesce(e.type, k.type) ELSE r.type + n.number END)::int AS type,
               perdure.micros(coalesce(e.at, k.at, r.at)) AS at,
               coalesce(e.place, k.place, '') AS site, coalesce(e.name, k.name, '') AS name,
               CASE WHEN r.type = 0 THEN coalesce(e.payload, k.payload)
                    WHEN r.type = 101 AND n.number = 0 THEN coalesce(p.input, g.input) END AS payload,
               coalesce(e.digest, k.digest) AS digest, coalesce(e.message, k.message) AS message,
               coalesce(e.token, k.token, 0) AS token, coalesce(e.version, k.version, 0) AS version
        FROM portion r
        CROSS JOIN LATERAL generate_series(r.first, r.last) AS n(number)
        LEFT JOIN perdure.process p ON p.id = r.process
        LEFT JOIN perdure.stream_gone g ON g.process = r.process
        LEFT JOIN perdure.event e ON r.type = 0 AND e.process = r.process AND e.run = r.run AND e.number = n.number
        LEFT JOIN perdure.stream_kept k ON r.type = 0 AND k.process = r.process AND k.run = r.run AND k.number = n.number
        WHERE r.number - r.last + n.number > behind AND r.number - r.last + n.number <= behind + most
    ), wanted AS MATERIALIZED (
        SELECT f.*, sum(coalesce(length(f.payload), 0)) OVER (ORDER BY f.place) - coalesce(length(f.payload), 0) AS before
        FROM found f
        WHERE (f.kind IS NULL OR CASE WHEN kinds IS NULL THEN f.kind NOT LIKE 'perdure/%' AND f.kind NOT LIKE '@%'
                                      ELSE f.kind = ANY (kinds) END)
          AND (types IS NULL OR f.type IS NULL OR f.type = ANY (types))
    )
    SELECT w.place, w.process, w.kind, w.key, w.code, w.run, w.number, w.turn, w.type, w.at, w.site, w.name, w.payload,
           w.digest, w.message, w.token, w.version
    FROM wanted w WHERE w.before <= bytes
    UNION ALL
    SELECT coalesce(min(w.place) FILTER (WHERE w.before > bytes) - 1, greatest(behind, least(reached, behind + most))), NULL, NULL, NULL,
           NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM wanted w
    ORDER BY 1, 2 NULLS LAST;
END
$$;

-- Remove what every stream has had, at most so many rows of each table, the oldest first; whether more may be left.
-- What was kept of removed processes and runs gets its ``until`` when none of its records waits in the inlet: one statement,
-- one snapshot, so all of them stand below the head.
CREATE OR REPLACE FUNCTION perdure.trim_streams(most int) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
DECLARE
    had  bigint;
    gone bigint;
    more boolean;
BEGIN
    LOCK TABLE perdure.event_stream IN ROW EXCLUSIVE MODE;  -- no stream is made meanwhile that wants what others have had
    SELECT min(s.position) INTO had FROM perdure.event_stream s;
    DELETE FROM perdure.stream_record r WHERE r.ctid = ANY (ARRAY(
        SELECT o.ctid FROM perdure.stream_record o WHERE o.number <= had ORDER BY o.number LIMIT most));
    GET DIAGNOSTICS gone = ROW_COUNT;
    more := gone = most;
    UPDATE perdure.stream_kept k SET until = h.number FROM perdure.stream_head h
    WHERE k.ctid = ANY (ARRAY(SELECT o.ctid FROM perdure.stream_kept o WHERE o.until IS NULL LIMIT most))
      AND NOT EXISTS (
          SELECT FROM perdure.stream_inlet i
          WHERE i.process = k.process AND i.type = 0 AND i.run = k.run AND i.first <= k.number OFFSET 0);
    UPDATE perdure.stream_gone g SET until = h.number FROM perdure.stream_head h
    WHERE g.ctid = ANY (ARRAY(SELECT o.ctid FROM perdure.stream_gone o WHERE o.until IS NULL LIMIT most))
      AND NOT EXISTS (SELECT FROM perdure.stream_inlet i WHERE i.process = g.process OFFSET 0);
    DELETE FROM perdure.stream_kept k WHERE k.ctid = ANY (ARRAY(
        SELECT o.ctid FROM perdure.stream_kept o WHERE o.until <= had ORDER BY o.until LIMIT most));
    GET DIAGNOSTICS gone = ROW_COUNT;
    more := more OR gone = most;
    DELETE FROM perdure.stream_gone g WHERE g.ctid = ANY (ARRAY(
        SELECT o.ctid FROM perdure.stream_gone o WHERE o.until <= had ORDER BY o.until LIMIT most));
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN more OR gone = most;
END
$$;

-- Write streams, each only if its version is the next one, and read all there are. A new one begins behind all that is
-- committed by now. A portion of what every stream has had is removed. To make or drop the triggers it waits for the
-- transactions that write, and others wait behind it meanwhile: so it gives up soon, and the client tries again.
CREATE OR REPLACE FUNCTION perdure.eventstreams(changes perdure.event_stream_in[]) RETURNS SETOF perdure.event_stream_out
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '250ms' AS $$
#variable_conflict use_column
DECLARE
    reached bigint := 0;
BEGIN
    IF cardinality(changes) > 0 THEN
        IF EXISTS (SELECT FROM unnest(changes) AS c WHERE c.version = 1 OR c.removed) THEN
            LOCK TABLE perdure.event_stream IN SHARE ROW EXCLUSIVE MODE;
        END IF;
        IF EXISTS (SELECT FROM unnest(changes) AS c WHERE c.version = 1) THEN
            WHILE perdure.trim_streams(3000) LOOP
                NULL;  -- what another stream has left, and its remover has not trimmed: no new stream is told of it
            END LOOP;
            PERFORM perdure.open_inlet();
            IF EXISTS (SELECT FROM unnest(changes) AS c WHERE c.position = -4611686018427387904) THEN
                LOCK TABLE perdure.event IN SHARE ROW EXCLUSIVE MODE;  -- removals that do not see it are over by then
            END IF;
            SELECT o.reached INTO reached FROM perdure.order_stream(2147483647) AS o;
        END IF;
        DELETE FROM perdure.event_stream k USING unnest(changes) AS c
        WHERE c.removed AND k.name = c.name AND k.version = c.version - 1;
        INSERT INTO perdure.event_stream AS k
        SELECT c.name, c.version, c.kinds, c.lifecycle, c.sink, coalesce(c.position, reached), c.owner,
               perdure.instant(c.until), c.failures, c.error, perdure.instant(c.changed_at), c.who, c.why, c.origin
        FROM unnest(changes) AS c
        WHERE NOT c.removed AND (c.version = 1 OR EXISTS (SELECT FROM perdure.event_stream k WHERE k.name = c.name))
        ORDER BY c.name
        ON CONFLICT (name) DO UPDATE SET
            version = excluded.version, kinds = excluded.kinds, lifecycle = excluded.lifecycle, sink = excluded.sink,
            position = excluded.position, owner = excluded.owner, until = excluded.until, failures = excluded.failures,
            error = excluded.error, changed_at = excluded.changed_at, who = excluded.who, why = excluded.why, origin = excluded.origin
        WHERE excluded.version = k.version + 1;
        IF EXISTS (SELECT FROM perdure.event_stream) THEN
            PERFORM perdure.trim_streams(3000);
        ELSIF EXISTS (SELECT FROM unnest(changes) AS c WHERE c.removed) THEN
            PERFORM perdure.close_inlet();
        END IF;
    END IF;
    RETURN QUERY SELECT o.* FROM perdure.event_stream_out o ORDER BY o.name;
END
$$;

-- For a stream that is to begin with what is stored: what is stored since an instant, and neither in the log nor in the
-- inlet, gets its places below the log, in the order of time and, in a process, of its commits. Of a process the log has
-- what came last, so all that is put here came before. One statement, one snapshot: an event and its row in the inlet are
-- seen together. Nothing is removed from the log meanwhile, since the stream's position is below all of it. The lock keeps
-- away others who fill, make and remove streams, and nobody who moves a position.
CREATE OR REPLACE FUNCTION perdure.fill_stream(stream text, since bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    start  timestamptz := perdure.instant(since);
    lowest bigint;
BEGIN
    LOCK TABLE perdure.event_stream IN SHARE UPDATE EXCLUSIVE MODE;
    IF NOT EXISTS (SELECT FROM perdure.event_stream s WHERE s.name = stream AND s.position = -4611686018427387904) THEN
        RETURN false;
    END IF;
    SELECT coalesce((SELECT r.number - r.last + r.first FROM perdure.stream_record r ORDER BY r.number LIMIT 1), h.number + 1)
    INTO lowest FROM perdure.stream_head h;
    WITH logged AS MATERIALIZED (
        SELECT r.process, r.run, r.first, r.last, r.type FROM perdure.stream_record r
        UNION ALL
        SELECT i.process, i.run, i.first, i.last, i.type FROM perdure.stream_inlet i
    ), edge AS MATERIALIZED (
        SELECT l.process, l.run, min(l.first) AS first FROM logged l WHERE l.type = 0 GROUP BY l.process, l.run
    ), life AS MATERIALIZED (
        SELECT l.process, bool_or(l.type = 101) AS created, bool_or(l.type = 102 OR l.type = 101 AND l.last = 1) AS begun
        FROM logged l WHERE l.type IN (101, 102) GROUP BY l.process
    ), found AS (
        SELECT p.id AS process, p.created_at AS at, 1 AS run, 0 AS first, 0 AS last, 101 AS type
        FROM perdure.process p LEFT JOIN life l ON l.process = p.id
        WHERE p.created_at >= start AND l.created IS NOT TRUE
        UNION ALL
        SELECT p.id, p.opened_at, 1, 0, 0, 102
        FROM perdure.process p LEFT JOIN life l ON l.process = p.id
        WHERE p.opened_at >= start AND l.begun IS NOT TRUE
        UNION ALL
        SELECT e.process, min(e.at), e.run, min(e.number), max(e.number), 0
        FROM perdure.event e LEFT JOIN edge l ON l.process = e.process AND l.run = e.run
        WHERE e.at >= start AND (l.first IS NULL OR e.number < l.first)
        GROUP BY e.process, e.run
    ), timed AS (
        SELECT f.*, max(f.at) OVER (PARTITION BY f.process ORDER BY f.type = 0, f.type, f.run) AS time FROM found f
    ), placed AS (
        SELECT t.*, sum(t.last - t.first + 1) OVER (
                   ORDER BY t.time DESC, t.process DESC, t.type = 0 DESC, t.type DESC, t.run DESC) AS places
        FROM timed t
    )
    INSERT INTO perdure.stream_record (number, process, at, run, first, last, type)
    SELECT lowest - p.places + p.last - p.first, p.process, p.time, p.run, p.first, p.last, p.type FROM placed p;
    UPDATE perdure.event_stream s SET version = s.version + 1, owner = '', until = perdure.instant(0), position = coalesce(
        (SELECT r.number - r.last + r.first - 1 FROM perdure.stream_record r ORDER BY r.number LIMIT 1), lowest - 1)
    WHERE s.name = stream;
    RETURN true;
END
$$;

-- The rows of the table, for a login that may see them and not change them.
CREATE OR REPLACE FUNCTION perdure.eventstreams_seen(changes perdure.event_stream_in[]) RETURNS SETOF perdure.event_stream_out
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(changes) > 0 THEN
        RAISE insufficient_privilege USING MESSAGE = 'this login may look, and change nothing';
    END IF;
    RETURN QUERY SELECT * FROM perdure.eventstreams('{}');
END
$$;
