-- Event streams. PostgreSQL has an inlet too: there several transactions write at a time, and numbers become visible in
-- another order than that in which they were given.

-- name: read_eventstreams
SELECT json_group_array(json_array(
    name, version, kinds, json(iif(lifecycle, 'true', 'false')), sink, position, owner, until, failures, error, changed_at,
    who, why, origin
)) FROM (SELECT * FROM event_stream ORDER BY name)

-- name: write_eventstream
INSERT INTO event_stream (
    name, version, kinds, lifecycle, sink, position, owner, until, failures, error, changed_at, who, why, origin
)
SELECT
    :name, :version, :kinds, :lifecycle, :sink, coalesce(:position, (SELECT max(number) FROM stream_record), 0), :owner, :until,
    :failures, :error, :changed_at, :who, :why, :origin
WHERE :version = 1 OR EXISTS (SELECT 1 FROM event_stream WHERE name = :name)
ON CONFLICT (name) DO UPDATE SET
    version = excluded.version, kinds = excluded.kinds, lifecycle = excluded.lifecycle, sink = excluded.sink,
    position = excluded.position, owner = excluded.owner, until = excluded.until, failures = excluded.failures,
    error = excluded.error, changed_at = excluded.changed_at, who = excluded.who, why = excluded.why, origin = excluded.origin
WHERE excluded.version = event_stream.version + 1

-- name: remove_eventstream
DELETE FROM event_stream WHERE name = :name AND version = :version - 1

-- name: count_eventstreams
SELECT count(*), (SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name = 'stream_events') FROM event_stream

-- name: forget_last_record
-- What stayed when the last stream was removed is a number and no record: what came after it was not logged.
UPDATE stream_record SET type = -1

-- name: is_unfilled
SELECT count(*) FROM event_stream WHERE name = :name AND position = :unfilled

-- name: fill_stream
-- What is stored, and not in the log, gets its places below the log, in the order of time and, in a process, of its commits.
-- Of a process the log has what came last, so all that is put here came before.
INSERT INTO stream_record (number, process, at, run, event, type)
WITH
edge AS MATERIALIZED (
    SELECT process, run, min(event) AS first FROM stream_record WHERE type = 0 GROUP BY process, run
),
found AS (
    SELECT id AS process, created_at AS at, 1 AS run, 0 AS event, 101 AS type FROM process
    WHERE created_at >= :since AND id NOT IN (SELECT process FROM stream_record WHERE type = 101)
    UNION ALL
    SELECT id, max(opened_at, created_at), 1, 0, 102 FROM process
    WHERE max(opened_at, created_at) >= :since AND id NOT IN (SELECT process FROM stream_record WHERE type = 102)
    UNION ALL
    SELECT e.process, e.at, e.run, e.number, 0 FROM event AS e
    LEFT JOIN edge AS l ON l.process = e.process AND l.run = e.run
    WHERE e.at >= :since AND (l.first IS NULL OR e.number < l.first)
),
timed AS (
    SELECT *, max(at) OVER (PARTITION BY process ORDER BY type = 0, type, run, event) AS time FROM found
)
SELECT
    coalesce((SELECT min(number) FROM stream_record), 1) - row_number() OVER (
        ORDER BY time DESC, process DESC, type = 0 DESC, type DESC, run DESC, event DESC
    ), process, time, run, event, type
FROM timed

-- name: begin_filled_stream
UPDATE event_stream SET
    version = version + 1, owner = '', until = 0, position = coalesce((SELECT min(number) - 1 FROM stream_record), 0)
WHERE name = :name

-- name: stream_created
CREATE TRIGGER stream_created AFTER INSERT ON process BEGIN
    INSERT INTO stream_record (process, at, run, event, type) VALUES (NEW.id, NEW.created_at, NEW.run, 0, 101);
    INSERT INTO stream_record (process, at, run, event, type)
    SELECT NEW.id, NEW.created_at, NEW.run, 0, 102 WHERE NEW.opened_at IS NOT NULL;
END

-- name: stream_begun
CREATE TRIGGER stream_begun AFTER UPDATE OF opened_at ON process WHEN OLD.opened_at IS NULL AND NEW.opened_at IS NOT NULL
BEGIN
    INSERT INTO stream_record (process, at, run, event, type)
    VALUES (NEW.id, CASE NEW.opened_at WHEN 0 THEN NEW.created_at ELSE NEW.opened_at END, NEW.run, 0, 102);
END

-- name: stream_events
CREATE TRIGGER stream_events AFTER INSERT ON event BEGIN
    INSERT INTO stream_record (process, at, run, event, type) VALUES (NEW.process, NEW.at, NEW.run, NEW.number, 0);
END

-- name: stream_keep
-- Events are removed: keep those whose records some stream has not had. Their times say nothing of that: a fork, an import
-- and a run that is begun again commit events of long ago.
CREATE TRIGGER stream_keep AFTER DELETE ON event
WHEN EXISTS (
    SELECT 1 FROM stream_record WHERE process = OLD.process AND type = 0 AND run = OLD.run AND event = OLD.number
    AND +number > (SELECT min(position) FROM event_stream)
)
BEGIN
    INSERT INTO stream_kept (
        process, run, number, turn, type, at, place, name, payload, digest, message, token, version, until
    ) SELECT
        OLD.process, OLD.run, OLD.number, OLD.turn, OLD.type, OLD.at, OLD.place, OLD.name, OLD.payload, OLD.digest, OLD.message,
        OLD.token, OLD.version, max(number)
    FROM stream_record WHERE 1 ON CONFLICT DO NOTHING;
END

-- name: stream_removed
-- The input stays for the record of the creation, if some stream has not had that.
CREATE TRIGGER stream_removed AFTER DELETE ON process BEGIN
    INSERT INTO stream_record (process, at, run, event, type) SELECT OLD.id, clock.at, OLD.run, 0, 103 FROM clock;
    INSERT INTO stream_gone (process, kind, key, code, input, until)
    SELECT OLD.id, OLD.kind, OLD.key, OLD.code, iif(EXISTS (
        SELECT 1 FROM stream_record WHERE process = OLD.id AND type = 101
        AND +number > (SELECT min(position) FROM event_stream)
    ), OLD.input, NULL), max(number)
    FROM stream_record WHERE 1 ON CONFLICT DO NOTHING;
END

-- name: trim_stream_record
-- What every stream has had: all, if there is none. At most so many rows at once, the oldest first.
DELETE FROM stream_record WHERE number IN (
    SELECT number FROM stream_record WHERE number <= min(
        coalesce((SELECT min(position) FROM event_stream), 9223372036854775807),
        (SELECT max(number) - 1 FROM stream_record)
    ) ORDER BY number LIMIT :most
)

-- name: trim_stream_kept
DELETE FROM stream_kept WHERE (process, run, number) IN (
    SELECT process, run, number FROM stream_kept
    WHERE until <= coalesce((SELECT min(position) FROM event_stream), 9223372036854775807) ORDER BY until LIMIT :most
)

-- name: trim_stream_gone
DELETE FROM stream_gone WHERE process IN (
    SELECT process FROM stream_gone
    WHERE until <= coalesce((SELECT min(position) FROM event_stream), 9223372036854775807) ORDER BY until LIMIT :most
)

-- name: read_stream
-- Records behind a position, of these kinds and types (null: all), at most so many positions and bytes of payloads; then how
-- far the answer reaches, whether or not anything there was wanted.
WITH
found AS MATERIALIZED (
    SELECT
        r.number AS place, r.process, coalesce(p.kind, g.kind) AS kind, coalesce(p.key, g.key) AS key,
        coalesce(p.code, g.code) AS code, r.run, r.event AS number, coalesce(e.turn, k.turn, 0) AS turn,
        CASE r.type WHEN 0 THEN coalesce(e.type, k.type) ELSE r.type END AS type, coalesce(e.at, k.at, r.at) AS at,
        coalesce(e.place, k.place, '') AS site, coalesce(e.name, k.name, '') AS name,
        CASE r.type WHEN 0 THEN coalesce(e.payload, k.payload) WHEN 101 THEN coalesce(p.input, g.input) END AS payload,
        coalesce(e.digest, k.digest) AS digest, coalesce(e.message, k.message) AS message,
        coalesce(e.token, k.token, 0) AS token, coalesce(e.version, k.version, 0) AS version
    FROM stream_record AS r
    LEFT JOIN process AS p ON p.id = r.process
    LEFT JOIN stream_gone AS g ON g.process = r.process
    LEFT JOIN event AS e ON r.type = 0 AND e.process = r.process AND e.run = r.run AND e.number = r.event
    LEFT JOIN stream_kept AS k ON r.type = 0 AND k.process = r.process AND k.run = r.run AND k.number = r.event
    WHERE r.number > :behind AND r.number <= :behind + :most AND r.type >= 0
),
wanted AS MATERIALIZED (
    SELECT *, sum(coalesce(length(payload), 0)) OVER (ORDER BY place) - coalesce(length(payload), 0) AS before FROM found
    WHERE (kind IS NULL OR iif(:kinds IS NULL, kind NOT LIKE 'perdure/%' AND kind NOT LIKE '@%',
                               kind IN (SELECT value FROM json_each(:kinds))))
    AND (:types IS NULL OR type IS NULL OR type IN (SELECT value FROM json_each(:types)))
)
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB), (
    SELECT coalesce(min(place) FILTER (WHERE before > :bytes) - 1, max(
        :behind, min(:behind + :most, coalesce((SELECT max(number) FROM stream_record), 0))
    )) FROM wanted
) FROM (
    SELECT
        json_array(
            place, hex(process), kind, key, code, run, number, turn, type, at, site, name, length(payload), length(digest),
            message, token, version
        ) AS head,
        coalesce(payload, x'') || coalesce(digest, x'') AS body
    FROM wanted WHERE before <= :bytes ORDER BY place
)

-- name: stream_head
SELECT coalesce(max(number), 0) FROM stream_record

-- name: drop_stream_created
DROP TRIGGER stream_created

-- name: drop_stream_begun
DROP TRIGGER stream_begun

-- name: drop_stream_events
DROP TRIGGER stream_events

-- name: drop_stream_keep
DROP TRIGGER stream_keep

-- name: drop_stream_removed
DROP TRIGGER stream_removed
