-- What all other functions use: the store's time, and the records as the client reads them.

-- The present: the server's clock or a test's with its lead, never behind its own high-water mark. One row, for
-- statements to read.
CREATE OR REPLACE VIEW perdure.present AS
SELECT greatest(coalesce(c.fake, clock_timestamp()) + c.lead, c.high_water) AS t FROM perdure.clock c WHERE c.one;

-- The store's time as an expression. In plpgsql, which keeps the plan: an SQL function that reads a table is parsed and
-- planned anew at every call.
CREATE OR REPLACE FUNCTION perdure.now() RETURNS timestamptz LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (SELECT k.t FROM perdure.present k);
END
$$;

-- Microseconds since 1970 as a time; the lowest and the highest number stand for infinite times, as in micros. Inlined, and
-- so every name in it says its schema (see micros).
CREATE OR REPLACE FUNCTION perdure.instant(bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN $1 OPERATOR(pg_catalog.=) BIGINT '9223372036854775807' THEN TIMESTAMP WITH TIME ZONE 'infinity'
        WHEN $1 OPERATOR(pg_catalog.=) BIGINT '-9223372036854775808' THEN TIMESTAMP WITH TIME ZONE '-infinity'
        ELSE TIMESTAMP WITH TIME ZONE '1970-01-01 00:00:00+00'
            OPERATOR(pg_catalog.+) ($1 OPERATOR(pg_catalog.*) INTERVAL '1 microsecond') END
$$;

-- A time as microseconds since 1970. Without a search path of its own, so that PostgreSQL can inline it: every name in it says
-- its schema instead. A time that is infinite, or that the client's calendar does not have, becomes the lowest or highest
-- number, and is no error: one row must not fail the claims of all.
CREATE OR REPLACE FUNCTION perdure.micros(timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN $1 OPERATOR(pg_catalog.>=) TIMESTAMP WITH TIME ZONE '9999-12-31 00:00:00+00' THEN BIGINT '9223372036854775807'
        WHEN $1 OPERATOR(pg_catalog.<) TIMESTAMP WITH TIME ZONE '0001-01-01 00:00:00+00' THEN BIGINT '-9223372036854775808'
        ELSE (extract(epoch FROM $1) OPERATOR(pg_catalog.*) 1000000)::bigint END
$$;

-- Which of so many places that share a claim is asked first at a time (microseconds since 1970): each equally often, at whatever
-- intervals claims come; see kernel/claim.py, which says the same in Python.
CREATE OR REPLACE FUNCTION perdure.first_place(t bigint, places int, spread bigint) RETURNS int
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN abs(t) % 2147483647 * spread % 2147483647 * places / 2147483647;
END
$$;

-- A process as the client reads it: the columns in the order of the record's fields, times in microseconds.
CREATE OR REPLACE VIEW perdure.process_out AS
SELECT p.id, p.kind, p.key, p.input, p.status::text AS status, p.run, p.version, p.token, p.owner,
       perdure.micros(p.due_at) AS due_at, p.reminder, p.inbox, p.seen, p.events, p.awaiting,
       p.deaths, p.alone_deaths, perdure.micros(p.deadline) AS deadline, p.priority::smallint AS priority,
       convert_to(p.attributes::text, 'UTF8') AS attributes, p.state, p.progress, p.result, p.error, p.parent, p.code,
       perdure.micros(p.created_at) AS created_at, perdure.micros(p.opened_at) AS opened_at,
       perdure.micros(p.changed_at) AS changed_at, p.share, coalesce(p.cost, 1) AS cost
FROM perdure.process p;

-- An event as the client reads it: whose it is, then the columns in the order of the record's fields.
CREATE OR REPLACE VIEW perdure.event_out AS
SELECT e.process, e.run, e.number, e.turn, e.type, perdure.micros(e.at) AS at, e.place, e.name, e.payload, e.digest,
       e.message, e.token, e.version
FROM perdure.event e;

-- A message as the client reads it: the columns in the order of the record's fields.
CREATE OR REPLACE VIEW perdure.message_out AS
SELECT m.id, m.process, m.type, m.name, m.payload, m.key, m.sender, m.number, perdure.micros(m.at) AS at,
       m.consumed_run, m.consumed_by
FROM perdure.message m;

-- Every worker that owns a process: one index seek per owner, however many processes it owns. In plpgsql, which keeps the
-- plan: an SQL function that reads a table is parsed and planned anew at every call.
CREATE OR REPLACE FUNCTION perdure.owners() RETURNS SETOF uuid LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    one uuid;
BEGIN
    SELECT p.owner INTO one FROM perdure.process p WHERE p.owner IS NOT NULL ORDER BY p.owner LIMIT 1;
    WHILE one IS NOT NULL LOOP
        RETURN NEXT one;
        SELECT p.owner INTO one FROM perdure.process p WHERE p.owner > one ORDER BY p.owner LIMIT 1;
    END LOOP;
END
$$;
