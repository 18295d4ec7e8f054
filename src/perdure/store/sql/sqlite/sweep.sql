-- The ways to be overdue, each a query on its own index, the longest overdue first: the ids, and how many bytes the rows
-- hold. :now, :most rows, an :owner; a page begins after the time :since and the id :behind, those of the last row of the page
-- before.

-- name: overdue_orphaned
WITH RECURSIVE
owners (owner) AS (
    SELECT min(owner) FROM process INDEXED BY process_owned WHERE owner IS NOT NULL
    UNION ALL
    SELECT (SELECT min(owner) FROM process INDEXED BY process_owned WHERE owner > owners.owner)
    FROM owners WHERE owners.owner IS NOT NULL
)
SELECT json_group_array(json_array(hex(id), bytes)) FROM (
    SELECT p.id, p.bytes FROM owners CROSS JOIN packed_process AS p ON p.owner = owners.owner
    WHERE NOT EXISTS (SELECT 1 FROM worker WHERE worker.id = owners.owner AND worker.ended_at IS NULL)
    AND p.due_at >= :since AND (p.due_at, p.id) > (:since, :behind)
    ORDER BY p.due_at, p.id LIMIT :most
)

-- name: overdue_lapsed
SELECT json_group_array(json_array(hex(id), bytes)) FROM (
    SELECT id, bytes FROM packed_process WHERE owner IS NOT NULL AND due_at <= :now
    AND due_at >= :since AND (due_at, id) > (:since, :behind)
    ORDER BY due_at, id LIMIT :most
)

-- name: overdue_expired
SELECT json_group_array(json_array(hex(id), bytes)) FROM (
    SELECT id, bytes FROM packed_process WHERE deadline IS NOT NULL AND status <= 3 AND deadline <= :now
    AND deadline >= :since AND (deadline, id) > (:since, :behind)
    ORDER BY deadline, id LIMIT :most
)

-- name: overdue_idle
SELECT json_group_array(json_array(hex(id), bytes)) FROM (
    SELECT id, bytes FROM packed_process WHERE reminder = 1 AND due_at <= :now
    AND due_at >= :since AND (due_at, id) > (:since, :behind)
    ORDER BY due_at, id LIMIT :most
)

-- name: overdue_owned
SELECT json_group_array(json_array(hex(id), bytes)) FROM (
    SELECT id, bytes FROM packed_process WHERE owner IS NOT NULL AND owner = :owner
    AND due_at >= :since AND (due_at, id) > (:since, :behind)
    ORDER BY due_at, id LIMIT :most
)

-- name: overdue_unhosted
-- Fair to all: of the waiting kinds and codes after :kind and :code, :most at a time, each has an equal part of the rows.
-- A few seeks for each; suspects are read apart. With the order in which rows go into an answer: first one of each.
WITH
longest (due_at) AS (SELECT :now - 60000000),
priorities (priority) AS (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)),
known (kind, code) AS (
    SELECT kind, code FROM due_pair
    UNION SELECT kind, code FROM process INDEXED BY process_suspect
    WHERE status = 1 AND owner IS NULL AND reminder = 0 AND deaths >= 2
),
pairs (kind, code) AS MATERIALIZED (
    SELECT kind, code FROM known WHERE (kind, code) > (:kind, :code) AND (EXISTS (
        SELECT 1 FROM priorities CROSS JOIN process INDEXED BY process_due
        ON process.kind = known.kind AND process.code = known.code AND process.priority = priorities.priority
        WHERE process.due_at <= (SELECT due_at FROM longest)
        AND process.status = 1 AND process.owner IS NULL AND process.reminder = 0 AND process.deaths < 2
    ) OR EXISTS (
        SELECT 1 FROM process INDEXED BY process_suspect
        WHERE kind = known.kind AND code = known.code AND due_at <= (SELECT due_at FROM longest)
        AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths >= 2
    ))
    ORDER BY kind, code LIMIT :most
),
part (most) AS MATERIALIZED (SELECT max(:most / max(count(*), 1), 1) FROM pairs),
ends (kind, code, priority, due_at) AS MATERIALIZED (
    SELECT pairs.kind, pairs.code, priorities.priority, coalesce((
        SELECT due_at FROM process INDEXED BY process_due
        WHERE kind = pairs.kind AND code = pairs.code AND priority = priorities.priority
        AND due_at <= (SELECT due_at FROM longest)
        AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2
        ORDER BY due_at LIMIT 1 OFFSET (SELECT max(most - 1, 0) FROM part)
    ), (SELECT due_at FROM longest))
    FROM pairs CROSS JOIN priorities
),
found (kind, code, due_at, id) AS (
    SELECT process.kind, process.code, process.due_at, process.id FROM ends CROSS JOIN process INDEXED BY process_due
    ON process.kind = ends.kind AND process.code = ends.code AND process.priority = ends.priority
    AND process.due_at <= ends.due_at
    AND process.status = 1 AND process.owner IS NULL AND process.reminder = 0 AND process.deaths < 2
    UNION ALL
    SELECT process.kind, process.code, process.due_at, process.id FROM pairs CROSS JOIN process INDEXED BY process_suspect
    ON process.kind = pairs.kind AND process.code = pairs.code AND process.due_at <= (SELECT due_at FROM longest)
    AND process.status = 1 AND process.owner IS NULL AND process.reminder = 0 AND process.deaths >= 2
),
ranked (due_at, id, kind, code, place) AS (
    SELECT due_at, id, kind, code, row_number() OVER (PARTITION BY kind, code ORDER BY due_at, id) FROM found
)
SELECT json_group_array(json_array(hex(id), bytes, turn)) FROM (
    SELECT p.id, p.bytes, first.turn FROM (
        SELECT due_at, id, row_number() OVER (ORDER BY place, kind, code) AS turn FROM ranked
        WHERE place <= (SELECT most FROM part)
    ) AS first
    CROSS JOIN packed_process AS p ON p.id = first.id ORDER BY first.due_at, first.id
)

-- name: overdue_inbox
-- By id: one seek for each process with letters that wait.
WITH RECURSIVE
inboxes (process) AS (
    SELECT min(process) FROM message INDEXED BY message_waits WHERE waits = 1 AND process > :behind
    UNION ALL
    SELECT (SELECT min(process) FROM message INDEXED BY message_waits WHERE waits = 1 AND process > inboxes.process)
    FROM inboxes WHERE inboxes.process IS NOT NULL
)
SELECT json_group_array(json_array(hex(id), bytes)) FROM (
    SELECT p.id, p.bytes FROM inboxes CROSS JOIN packed_process AS p ON p.id = inboxes.process
    WHERE p.status = 1 AND p.owner IS NULL AND p.due_at > :now LIMIT :most
)

-- name: find_finished
-- Candidates of a pruning, looked for without the write lock: those finished longest ago, one seek per final status. Each
-- with its version, the number of its events in all runs, up to :many, and whether it has former runs besides the last one.
-- None while the note :name, of workers that remove processes by rules, was written after :since.
SELECT json_group_array(json_array(hex(id), version, CASE run WHEN 1 THEN events ELSE (
    SELECT count(*) FROM (SELECT 1 FROM event WHERE event.process = old.id LIMIT :many)
) END, coalesce(first_run, 1) + 1 < run)) FROM (
    SELECT * FROM (
        SELECT changed_at, id FROM process INDEXED BY process_rested
        WHERE status >= 2 AND status = 4 AND changed_at <= :before ORDER BY changed_at, id LIMIT :most
    )
    UNION ALL
    SELECT * FROM (
        SELECT changed_at, id FROM process INDEXED BY process_rested
        WHERE status >= 2 AND status = 5 AND changed_at <= :before ORDER BY changed_at, id LIMIT :most
    )
    UNION ALL
    SELECT * FROM (
        SELECT changed_at, id FROM process INDEXED BY process_rested
        WHERE status >= 2 AND status = 6 AND changed_at <= :before ORDER BY changed_at, id LIMIT :most
    )
    ORDER BY changed_at, id LIMIT :most
) AS old JOIN process USING (id)
WHERE NOT EXISTS (SELECT 1 FROM note WHERE name = :name AND changed_at > :since)

-- name: find_ended
-- A page of the processes that had ended :before a time, after the time :since and the id :behind, the longest ended first:
-- one seek per final status.
SELECT json_group_array(json_array(hex(id), bytes)) FROM (
    SELECT p.id, p.bytes FROM (
        SELECT * FROM (
            SELECT changed_at, id FROM process INDEXED BY process_rested
            WHERE status >= 2 AND status = 4 AND changed_at <= :before
            AND changed_at >= :since AND (changed_at, id) > (:since, :behind) ORDER BY changed_at, id LIMIT :most
        )
        UNION ALL
        SELECT * FROM (
            SELECT changed_at, id FROM process INDEXED BY process_rested
            WHERE status >= 2 AND status = 5 AND changed_at <= :before
            AND changed_at >= :since AND (changed_at, id) > (:since, :behind) ORDER BY changed_at, id LIMIT :most
        )
        UNION ALL
        SELECT * FROM (
            SELECT changed_at, id FROM process INDEXED BY process_rested
            WHERE status >= 2 AND status = 6 AND changed_at <= :before
            AND changed_at >= :since AND (changed_at, id) > (:since, :behind) ORDER BY changed_at, id LIMIT :most
        )
        ORDER BY changed_at, id LIMIT :most
    ) AS old CROSS JOIN packed_process AS p ON p.id = old.id
    ORDER BY old.changed_at, old.id
)

-- name: read_finished
-- Those of the candidates that are still finished long ago, with what is needed to keep their keys.
WITH common (before) AS (SELECT ?), given (id) AS (VALUES /* each */ (?) /* end */)
SELECT json_group_array(json_array(hex(p.id), p.kind, p.key, length(p.input))),
    CAST(group_concat(p.input, '') AS BLOB)
FROM given CROSS JOIN process AS p ON p.id = given.id
WHERE p.status >= 4 AND p.changed_at <= (SELECT before FROM common)

-- name: read_ended_at
-- Those of the given processes that have ended and are still at their version, with what is needed to keep their keys.
WITH given (id, version) AS (VALUES /* each */ (?, ?) /* end */)
SELECT json_group_array(json_array(hex(p.id), p.kind, p.key, length(p.input))),
    CAST(group_concat(p.input, '') AS BLOB)
FROM given CROSS JOIN process AS p ON p.id = given.id
WHERE p.status >= 4 AND p.version = given.version

-- name: keep_keys
INSERT INTO key_kept (kind, key, process, digest, due_at)
SELECT * FROM (VALUES /* each */ (?, ?, ?, ?, ?) /* end */) WHERE column3 IS NOT -0.5
ON CONFLICT (kind, key) DO UPDATE SET
    process = excluded.process, digest = excluded.digest, due_at = excluded.due_at

-- name: prune_events
DELETE FROM event WHERE process IN (VALUES /* each */ (?) /* end */)

-- name: prune_messages
DELETE FROM message WHERE process IN (VALUES /* each */ (?) /* end */)

-- name: prune_processes
DELETE FROM process WHERE id IN (VALUES /* each */ (?) /* end */)

-- name: release_key
UPDATE process SET key = NULL WHERE id = :process

-- name: find_reopened
-- A page of unfinished processes with former runs, by id, and whether the oldest of them ended by a time. The present run
-- and the one before it stay.
SELECT json_group_array(json_array(hex(id), over)) FROM (
    SELECT id, first + 1 < run AND EXISTS (
        SELECT 1 FROM event WHERE process = page.id AND run = page.first + 1 AND number = 1 AND at <= :before
    ) AS over
    FROM (
        SELECT id, coalesce(first_run, 1) AS first, run FROM process INDEXED BY process_reopened
        WHERE run > 2 AND status <= 3 AND id > :behind ORDER BY id LIMIT :most
    ) AS page ORDER BY id
)

-- name: read_first_run
-- Whether the oldest run of an unfinished process ended so long ago that it may be removed.
SELECT count(*) FROM process JOIN event ON event.process = process.id
    AND event.run = coalesce(process.first_run, 1) + 1 AND event.number = 1 AND event.at <= :before
WHERE process.id = :process AND process.status <= 3 AND coalesce(process.first_run, 1) + 1 < process.run

-- name: is_at_version
SELECT count(*) FROM process WHERE id = :process AND version = :version

-- name: has_former_run
SELECT count(*) FROM process WHERE id = :process AND coalesce(first_run, 1) + 1 < run

-- name: remove_heard
DELETE FROM message WHERE process = :process AND number IN (
    SELECT number FROM message AS old
    WHERE old.process = :process
    AND old.consumed_run < (SELECT coalesce(first_run, 1) FROM process WHERE id = :process)
    ORDER BY number LIMIT :most
)

-- name: prune_first_run
DELETE FROM event WHERE process = :process AND run = (SELECT coalesce(first_run, 1) FROM process WHERE id = :process)
AND number IN (
    SELECT number FROM event AS old
    WHERE old.process = :process AND old.run = (SELECT coalesce(first_run, 1) FROM process WHERE id = :process)
    AND (old.type NOT IN (38, 39) OR old.at <= :known) ORDER BY number LIMIT :most
)

-- name: forget_first_run
UPDATE process SET first_run = coalesce(first_run, 1) + 1 WHERE id = :process

-- name: prune_heard
-- Messages that were received in removed runs, unless the oldest remaining run has taken them over, or a sender's key counts.
DELETE FROM message
WHERE process = :process AND consumed_run < (SELECT coalesce(first_run, 1) FROM process WHERE id = :process)
AND at <= :before AND (key IS NULL OR at <= :known)
AND number NOT IN (
    SELECT message FROM event
    WHERE event.process = :process AND event.run = (SELECT coalesce(first_run, 1) FROM process WHERE id = :process)
    AND message IS NOT NULL
)

-- name: prune_answers
DELETE FROM event
WHERE process = :process AND run < (SELECT coalesce(first_run, 1) FROM process WHERE id = :process)
AND type IN (38, 39) AND at <= :known

-- name: prune_keys
DELETE FROM key_kept WHERE (kind, key) IN (SELECT kind, key FROM key_kept WHERE due_at <= :now ORDER BY due_at LIMIT :most)
