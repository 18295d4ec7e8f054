-- The doors of the store, as the client calls them. What they do stands in functions/, a file for each verb. Behind a pooler the
-- search path is the login's own: a name outside our schema says its schema too, unless it is a keyword (see functions/base.sql).

-- name: now
SELECT perdure.micros(perdure.now()) AS now

-- name: lineage
SELECT (SELECT c.system_identifier FROM pg_catalog.pg_control_system() c) AS cluster,
       CASE WHEN pg_catalog.pg_is_in_recovery() THEN p.timeline_id
            ELSE CAST(CAST('x' OPERATOR(pg_catalog.||) pg_catalog.left(
                pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8) AS bit(32)) AS int) END AS timeline,
       (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
             ELSE pg_catalog.pg_current_wal_flush_lsn() END
        OPERATOR(pg_catalog.-) '0/0'::pg_catalog.pg_lsn)::bigint AS written
FROM pg_catalog.pg_control_checkpoint() p

-- name: only_reads
-- Whether this server is a standby, or the connection may only read.
SELECT pg_catalog.pg_is_in_recovery()
       OR pg_catalog.current_setting('transaction_read_only')::boolean AS only_reads

-- name: line
SELECT * FROM perdure.line()

-- name: draw_line
SELECT perdure.draw_line($1, $2)

-- name: marks
SELECT * FROM perdure.marks($1)

-- name: start
SELECT * FROM perdure.start($1, $2, $3, $4, $5, $6)

-- name: start_telling
SELECT * FROM perdure.start_telling($1, $2, $3, $4, $5, $6, $7)

-- name: commit
SELECT * FROM perdure.commit($1, $2, $3, $4, $5)

-- name: commit_alone
SELECT * FROM perdure.commit_alone($1, $2, $3, $4, $5)

-- name: commit_outward_alone
SELECT * FROM perdure.commit_outward_alone($1, $2, $3, $4, $5, $6, $7, $8)

-- name: commit_outward
SELECT * FROM perdure.commit_outward($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: commit_bringing_alone
SELECT * FROM perdure.commit_bringing_alone($1, $2, $3, $4, $5, $6)

-- name: commit_bringing
SELECT * FROM perdure.commit_bringing($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: commit_and_remove
SELECT * FROM perdure.commit_and_remove($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: send
SELECT * FROM perdure.send_within($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: send_alone
SELECT * FROM perdure.send_alone_within($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: claim
SELECT s.now, s.next_due_at, s.alive, s.suspects, s.was_owned_by,
       (SELECT perdure.beats_of($1)) AS beats, (s.taken).*
FROM perdure.claim($1, $2, $3, $4, $5, $6, $7) AS s

-- name: claim_among
SELECT s.now, s.left_due_at, s.alive, false AS suspects, NULL::pg_catalog.uuid AS was_owned_by,
       (SELECT perdure.beats_of($1)) AS beats, (s.taken).*
FROM perdure.claim_among($1, $2, $3, $4, $5, $6) AS s

-- name: claim_resting
SELECT s.now, NULL::bigint AS next_due_at, s.alive, false AS suspects, NULL::pg_catalog.uuid AS was_owned_by,
       (SELECT perdure.beats_of($1)) AS beats, (s.taken).*
FROM perdure.claim_resting($1, $2, $3, $4, $5, $6, $7, $8) AS s

-- name: claim_queued
SELECT s.now, s.next_due_at, s.alive, s.suspects, s.was_owned_by,
       (SELECT perdure.beats_of($1)) AS beats, (s.taken).*
FROM perdure.claim_queued($1, $2, $3, $4, $5, $6, $7) AS s

-- name: seize
SELECT s.now, NULL::bigint AS next_due_at, true AS alive, false AS suspects, s.was_owned_by, NULL::bigint AS beats,
       (s.taken).*
FROM perdure.seize($1, $2, $3) AS s

-- name: claimed_events
SELECT * FROM perdure.claimed_events_from($1, $2, $3, $4)

-- name: claimed_events_from
-- Histories that are not claimed, up to so many bytes: those before whose process less than that comes. The columns are
-- those of event_out.
SELECT h.process, h.run, h.number, h.turn, h.type, h.at, h.place, h.name, h.payload, h.digest, h.message, h.token, h.version
FROM (
    SELECT e.*, pg_catalog.sum(b.bytes) OVER (ORDER BY e.process) AS total,
           pg_catalog.sum(b.bytes) OVER (PARTITION BY e.process) AS own
    FROM perdure.claimed_events_from($1, $2, $3, $4) AS e
    CROSS JOIN LATERAL (
        SELECT $6::int OPERATOR(pg_catalog.+) coalesce(pg_catalog.octet_length(e.payload), 0) AS bytes) AS b
) AS h
WHERE h.total OPERATOR(pg_catalog.-) h.own OPERATOR(pg_catalog.<) $5::bigint
ORDER BY h.process, h.number

-- name: claimed_messages
SELECT * FROM perdure.held_letters($1, $2, $3, $4)

-- name: beat
SELECT * FROM perdure.beat_telling_skipped($1, $2, $3, $4, $5, $6, $7)

-- name: reached
SELECT (SELECT pg_catalog.max(m.number) FROM perdure.migration m) AS reached, (SELECT r.oldest FROM perdure.schema_reader r) AS oldest

-- name: enlist
SELECT * FROM perdure.enlist($1, $2, $3, $4, $5)

-- name: retire
SELECT perdure.retire($1, $2, $3) AS ended

-- name: workers
SELECT * FROM perdure.workers_with_figures($1)

-- name: workers_of
SELECT * FROM perdure.workers_of($1)

-- name: keep_hang
SELECT k.now FROM perdure.keep_hang($1, $2) AS k(now) WHERE k.now IS NOT NULL

-- name: hold_lock
SELECT pg_catalog.pg_try_advisory_lock($1) AS held

-- name: free_lock
SELECT pg_catalog.pg_advisory_unlock($1) AS freed

-- name: oldest_presence
SELECT pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.min(a.backend_start)) AS seconds
FROM pg_catalog.pg_stat_activity a
WHERE a.usename OPERATOR(pg_catalog.=) CURRENT_USER AND a.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
  AND a.application_name OPERATOR(pg_catalog.=) 'perdure presence'

-- name: ended_page
-- Up to so many bytes of what the rows hold, and one at least. The last column is how many there would be without this bound.
SELECT h.* FROM (
    SELECT s.*, pg_catalog.sum(s.bytes) OVER w AS total, pg_catalog.count(*) OVER () AS rows
    FROM (
        SELECT o.*, b.bytes
        FROM perdure.ended_page($1, $2, $3, $4) WITH ORDINALITY AS o
        CROSS JOIN LATERAL (
            SELECT pg_catalog.octet_length(o.input) OPERATOR(pg_catalog.+) coalesce(pg_catalog.octet_length(o.state), 0)
                   OPERATOR(pg_catalog.+) coalesce(pg_catalog.octet_length(o.result), 0)
                   OPERATOR(pg_catalog.+) coalesce(pg_catalog.octet_length(o.error), 0) AS bytes) AS b
    ) AS s
    WINDOW w AS (ORDER BY s.ordinality ROWS UNBOUNDED PRECEDING)
) AS h
WHERE h.ordinality OPERATOR(pg_catalog.=) 1 OR h.total OPERATOR(pg_catalog.<=) $5::bigint
ORDER BY h.ordinality

-- name: overdue_page
-- The same. Of unhosted rows first one of each kind and code, in their order: the next page begins behind the last of these.
SELECT h.* FROM (
    SELECT s.*, pg_catalog.row_number() OVER w AS turn, pg_catalog.sum(s.bytes) OVER w AS total, pg_catalog.count(*) OVER () AS rows
    FROM (
        SELECT o.*, b.bytes,
               CASE WHEN $1 OPERATOR(pg_catalog.=) 'unhosted' THEN
                   pg_catalog.row_number() OVER (PARTITION BY o.kind, o.code ORDER BY o.ordinality) END AS place,
               CASE WHEN $1 OPERATOR(pg_catalog.=) 'unhosted' THEN o.kind END AS kind_asked,
               CASE WHEN $1 OPERATOR(pg_catalog.=) 'unhosted' THEN o.code END AS code_asked
        FROM perdure.overdue_page($1, $2, $3, $4, $5, $6, $7) WITH ORDINALITY AS o
        CROSS JOIN LATERAL (
            SELECT pg_catalog.octet_length(o.input) OPERATOR(pg_catalog.+) coalesce(pg_catalog.octet_length(o.state), 0)
                   OPERATOR(pg_catalog.+) coalesce(pg_catalog.octet_length(o.result), 0)
                   OPERATOR(pg_catalog.+) coalesce(pg_catalog.octet_length(o.error), 0) AS bytes) AS b
    ) AS s
    WINDOW w AS (ORDER BY s.place, s.kind_asked, s.code_asked, s.ordinality ROWS UNBOUNDED PRECEDING)
) AS h
WHERE h.turn OPERATOR(pg_catalog.=) 1 OR h.total OPERATOR(pg_catalog.<=) $8::bigint
ORDER BY h.ordinality

-- name: search
SELECT * FROM perdure.search_page($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- name: search_by_id
SELECT * FROM perdure.search_by_id($1, $2, $3)

-- name: count
SELECT * FROM perdure.counts($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: history
SELECT * FROM perdure.history($1, $2, $3, $4, $5, $6, $7)

-- name: messages
SELECT * FROM perdure.later_messages($1, $2)

-- name: clocks
SELECT * FROM perdure.clocks($1)

-- name: next_messages
SELECT * FROM perdure.next_messages($1, $2, $3)

-- name: waiting_letters
SELECT * FROM perdure.waiting_letters($1, $2, $3, $4, $5, $6, $7)

-- name: queues
SELECT * FROM perdure.queues($1)

-- name: circuits
SELECT * FROM perdure.circuits($1)

-- name: leaders
SELECT * FROM perdure.leaders($1)

-- name: notes
SELECT * FROM perdure.notes($1)

-- name: eventstreams
SELECT * FROM perdure.eventstreams($1)

-- name: keptfindings
SELECT * FROM perdure.keptfindings($1)

-- name: audits
SELECT * FROM perdure.audits($1)

-- name: stream_page
SELECT * FROM perdure.stream_page($1, $2, $3, $4, $5)

-- name: fill_stream
SELECT perdure.fill_stream($1, $2) AS filled

-- name: trim_streams
SELECT perdure.trim_streams($1) AS more

-- name: stream_head
SELECT o.reached AS number FROM perdure.order_stream(10000) AS o

-- name: loads
SELECT * FROM perdure.loads($1)

-- name: queuedepths
SELECT * FROM perdure.queuedepths($1)

-- name: backlogs
SELECT * FROM perdure.backlogs($1)

-- name: remove_runs
SELECT perdure.remove_runs($1, $2, $3) AS runs

-- name: remove_ended
SELECT perdure.remove_ended($1, $2, $3) AS processes

-- name: prune_runs
SELECT * FROM perdure.prune_runs($1, $2, $3, $4, $5)

-- name: prune
SELECT * FROM perdure.prune_portion($1, $2, $3, $4)
