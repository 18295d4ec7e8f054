-- The clock of the database and its line, which are one row; and how far processes are, for a store that was set back.

-- The clock as people see it (kernel/clock.py), after a change whose version is the next one; people set only "mending".
CREATE OR REPLACE FUNCTION perdure.clocks(changes perdure.clock_in[]) RETURNS TABLE (
    name text, version int, at bigint, machine_at bigint, lead bigint, lead_since bigint, mending boolean,
    changed_at bigint, who text, why text, origin text
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
#variable_conflict use_column
BEGIN
    IF cardinality(changes) > 0 THEN
        UPDATE perdure.clock k SET version = c.version, mending = c.mending, changed_at = perdure.instant(c.changed_at),
            who = c.who, why = c.why, origin = c.origin
        FROM unnest(changes) AS c
        WHERE k.one AND c.version = k.version + 1;
    END IF;
    RETURN QUERY SELECT 'clock', c.version, perdure.micros(p.t), perdure.micros(coalesce(c.fake, clock_timestamp())),
        (extract(epoch FROM c.lead) * 1000000)::bigint, perdure.micros(c.lead_since), c.mending,
        coalesce(perdure.micros(c.changed_at), 0), c.who, c.why, c.origin
    FROM perdure.clock c CROSS JOIN perdure.present p WHERE c.one;
END
$$;

-- The rows of the table, for a login that may see them and not change them.
CREATE OR REPLACE FUNCTION perdure.clocks_seen(changes perdure.clock_in[]) RETURNS TABLE (
    name text, version int, at bigint, machine_at bigint, lead bigint, lead_since bigint, mending boolean,
    changed_at bigint, who text, why text, origin text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(changes) > 0 THEN
        RAISE insufficient_privilege USING MESSAGE = 'this login may look, and change nothing';
    END IF;
    RETURN QUERY SELECT * FROM perdure.clocks('{}');
END
$$;

-- Which database this is, and on which line; how long ago the line was drawn (microseconds).
CREATE OR REPLACE FUNCTION perdure.line(OUT database oid, OUT line uuid, OUT since bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    SELECT d.oid INTO database FROM pg_database d WHERE d.datname = current_database();
    SELECT c.line, perdure.micros(perdure.now()) - coalesce(perdure.micros(c.line_at), 0) INTO line, since
    FROM perdure.clock c WHERE c.one;
END
$$;

-- Tell all other stores that the database was set back; nothing changes if another store has told it already.
CREATE OR REPLACE FUNCTION perdure.draw_line(known uuid, drawn uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE perdure.clock c SET line = drawn, line_at = perdure.now() WHERE c.one AND c.line IS NOT DISTINCT FROM known;
END
$$;

-- How far these processes are: a store object compares this with the answers it got (see store/failover.py).
CREATE OR REPLACE FUNCTION perdure.marks(ids uuid[]) RETURNS TABLE (id uuid, token int, version int, owner uuid)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT p.id, p.token, p.version, p.owner FROM perdure.process p WHERE p.id = ANY (ids);
END
$$;
