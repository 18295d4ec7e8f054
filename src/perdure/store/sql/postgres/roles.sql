-- Who may do what: five roles of the database, named after the schema. A login without rights on the tables works through
-- functions that run as the owner of the schema (SECURITY DEFINER, each with a path of its own).

-- name: grant_roles
-- After every installation of functions: revoke all rights, then grant them to the roles that exist. Needs the owner only.
DO $$
DECLARE
    base  text := (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                   WHERE c.oid = 'perdure.migration'::regclass);
    every text[] := '{now,micros,line,marks}';
    doors jsonb := '{
        "look": ["search", "search_page", "search_by_id", "count", "counts", "history", "later_messages",
                 "incarnations", "overdue_page", "ended_page", "queues_seen",
                 "clocks_seen", "circuits_seen", "leaders_seen", "notes_seen", "eventstreams_seen",
                 "keptfindings_seen", "audits_seen", "stream_page",
                 "order_stream", "loads", "backlogs", "queuedepths",
                 "workers_with_figures", "workers_of"],
        "start": ["start_by_client", "enqueue", "enqueue_with_priority", "search_by_id"],
        "signal": ["send_by_client", "answers_seen", "tell", "tell_within", "search_by_id"],
        "operate": ["send", "send_alone", "send_within", "send_alone_within", "commit", "commit_alone", "commit_outward",
                    "commit_outward_alone", "commit_and_remove", "remove_runs", "remove_ended", "start", "start_telling", "seize",
                    "held_letters", "claimed_events", "claimed_events_from", "claimed_messages", "queues", "clocks",
                    "circuits", "leaders", "notes", "eventstreams", "fill_stream", "trim_streams", "keptfindings",
                    "audits"]
    }';
    role  text;
    door  record;
BEGIN
    EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', base);
    FOR role IN SELECT k FROM jsonb_object_keys(doors) AS k LOOP
        FOR door IN
            SELECT p.oid::regprocedure AS name, p.proname = 'micros' AS inlined FROM pg_proc p
            WHERE p.pronamespace = to_regnamespace(quote_ident(base))
              AND (p.proname = ANY (every) OR doors -> role ? p.proname::text)
        LOOP
            IF NOT door.inlined THEN
                EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', door.name);
            END IF;
            IF EXISTS (SELECT FROM pg_roles r WHERE r.rolname = base || '_' || role) THEN
                EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', door.name, base || '_' || role);
            END IF;
        END LOOP;
        IF EXISTS (SELECT FROM pg_roles r WHERE r.rolname = base || '_' || role) THEN
            EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', base, base || '_' || role);
            EXECUTE format('GRANT SELECT ON %I.migration TO %I', base, base || '_' || role);
        END IF;
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles r WHERE r.rolname = base || '_work') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', base, base || '_work');
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO %I', base, base || '_work');
        EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %I TO %I', base, base || '_work');
    END IF;
END
$$

-- name: create_roles
-- Needs CREATEROLE. The role operate may do what look may do.
DO $$
DECLARE
    base text := (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                  WHERE c.oid = 'perdure.migration'::regclass);
    role text;
BEGIN
    FOREACH role IN ARRAY '{look,start,signal,operate,work}'::text[] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = base || '_' || role) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', base || '_' || role);
        END IF;
    END LOOP;
    IF NOT pg_has_role(base || '_operate', base || '_look', 'MEMBER') THEN
        EXECUTE format('GRANT %I TO %I', base || '_look', base || '_operate');
    END IF;
END
$$

-- name: closed_doors
-- Which of these functions the login may not call: a narrower one replaces each. The names are passed as text[], which
-- the driver knows: for name[] it would query the catalogue, which takes longer than all else here.
SELECT p.proname AS name FROM pg_catalog.pg_proc p
WHERE p.pronamespace OPERATOR(pg_catalog.=) (
        SELECT c.relnamespace FROM pg_catalog.pg_class c
        WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('perdure.migration'))
  AND p.proname OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.text[]::pg_catalog.name[])
  AND NOT pg_catalog.has_function_privilege(p.oid, 'EXECUTE')

-- name: closed_start
SELECT * FROM perdure.start_by_client($1, $2, $3, $4, $5, $6, NULL)

-- name: closed_start_telling
SELECT * FROM perdure.start_by_client($1, $2, $3, $4, $5, $6, $7)

-- name: closed_send
SELECT * FROM perdure.send_by_client($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: closed_send_alone
SELECT * FROM perdure.send_by_client(
    ARRAY[$1::pg_catalog.uuid], ARRAY[$2::pg_catalog.uuid], ARRAY[$3::int], ARRAY[$4::pg_catalog.text],
    ARRAY[$5::pg_catalog.bytea], ARRAY[$6::pg_catalog.text], ARRAY[$7::pg_catalog.bytea], $8, $9)

-- name: closed_history
SELECT * FROM perdure.answers_seen($1, $2, $3, $4, $5, $6, $7)

-- name: closed_claimed_events_from
SELECT h.process, h.run, h.number, h.turn, h.type, h.at, h.place, h.name, h.payload, h.digest, h.message, h.token, h.version
FROM (
    SELECT e.*, pg_catalog.sum(b.bytes) OVER (ORDER BY e.process) AS total,
           pg_catalog.sum(b.bytes) OVER (PARTITION BY e.process) AS own
    FROM ROWS FROM (
        pg_catalog.unnest($1::pg_catalog.uuid[]), pg_catalog.unnest($2::int[]), pg_catalog.unnest($3::int[]),
        pg_catalog.unnest($4::int[])) AS u(process, run, first, last)
    CROSS JOIN LATERAL perdure.history(
        u.process, u.run, u.first OPERATOR(pg_catalog.-) 1, u.last OPERATOR(pg_catalog.-) u.first OPERATOR(pg_catalog.+) 1,
        false, NULL, NULL) AS e
    CROSS JOIN LATERAL (
        SELECT $6::int OPERATOR(pg_catalog.+) coalesce(pg_catalog.octet_length(e.payload), 0) AS bytes) AS b
    WHERE e.number OPERATOR(pg_catalog.<=) u.last
) AS h
WHERE h.total OPERATOR(pg_catalog.-) h.own OPERATOR(pg_catalog.<) $5::bigint
ORDER BY h.process, h.number

-- name: closed_queues
SELECT * FROM perdure.queues_seen($1)

-- name: closed_clocks
SELECT * FROM perdure.clocks_seen($1)

-- name: closed_circuits
SELECT * FROM perdure.circuits_seen($1)

-- name: closed_leaders
SELECT * FROM perdure.leaders_seen($1)

-- name: closed_keptfindings
SELECT * FROM perdure.keptfindings_seen($1)

-- name: closed_audits
SELECT * FROM perdure.audits_seen($1)

-- name: closed_notes
SELECT * FROM perdure.notes_seen($1)

-- name: closed_eventstreams
SELECT * FROM perdure.eventstreams_seen($1)
