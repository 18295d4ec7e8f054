-- What checks have found, and how far the checks in the background have come.

-- A finding as a program reads it: the columns in the order of the record's fields, times in microseconds.
CREATE OR REPLACE VIEW perdure.kept_finding_out AS
SELECT f.name, f.version, f.law, f.process, f.kind, f.text, perdure.micros(f.since) AS since,
       perdure.micros(f.seen_at) AS seen_at, perdure.micros(f.gone_at) AS gone_at, f.mended_by, f.mended, false AS removed
FROM perdure.finding f;

-- Write findings, each only if its version is the next one, remove those that say so, and read all there are.
CREATE OR REPLACE FUNCTION perdure.keptfindings(changes perdure.kept_finding_in[]) RETURNS SETOF perdure.kept_finding_out
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
#variable_conflict use_column
BEGIN
    IF cardinality(changes) > 0 THEN
        DELETE FROM perdure.finding k USING unnest(changes) AS c
        WHERE c.removed AND k.name = c.name AND c.version = k.version + 1;
        INSERT INTO perdure.finding AS k
        SELECT c.name, c.version, c.law, c.process, c.kind, c.text, perdure.instant(c.since), perdure.instant(c.seen_at),
               perdure.instant(c.gone_at), c.mended_by, c.mended
        FROM unnest(changes) AS c
        WHERE NOT c.removed AND (c.version = 1 OR EXISTS (SELECT FROM perdure.finding k WHERE k.name = c.name))
        ORDER BY c.name
        ON CONFLICT (name) DO UPDATE SET
            version = excluded.version, law = excluded.law, process = excluded.process, kind = excluded.kind,
            text = excluded.text, since = excluded.since, seen_at = excluded.seen_at, gone_at = excluded.gone_at,
            mended_by = excluded.mended_by, mended = excluded.mended
        WHERE excluded.version = k.version + 1;
    END IF;
    RETURN QUERY SELECT o.* FROM perdure.kept_finding_out o ORDER BY o.name;
END
$$;

-- The rows of the table, for a login that may see them and not change them.
CREATE OR REPLACE FUNCTION perdure.keptfindings_seen(changes perdure.kept_finding_in[])
RETURNS SETOF perdure.kept_finding_out
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(changes) > 0 THEN
        RAISE insufficient_privilege USING MESSAGE = 'this login may look, and change nothing';
    END IF;
    RETURN QUERY SELECT * FROM perdure.keptfindings('{}');
END
$$;

-- The audit as a program reads it. Before it is first written it is as new, and knows the line that the database is on,
-- unless another line was drawn since the database was made: then that one is news.
CREATE OR REPLACE VIEW perdure.audit_out AS
SELECT n.name, coalesce(a.version, 0) AS version, coalesce(perdure.micros(a.due_at), 0) AS due_at,
       coalesce(a.worker, '') AS worker, coalesce(a.place, '[]') AS place,
       coalesce(perdure.micros(a.begun_at), 0) AS begun_at, coalesce(a.checked, 0) AS checked,
       coalesce(a.found, 0) AS found, coalesce(a.rounds, 0) AS rounds, perdure.micros(a.ended_at) AS ended_at,
       coalesce(a.line, CASE WHEN c.line_at IS NULL THEN n.line_now ELSE '' END) AS line, n.line_now
FROM perdure.clock c
CROSS JOIN LATERAL (
    SELECT 'background' COLLATE "C" AS name,
           (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()) || '/'
           || coalesce(c.line::text, '') AS line_now
) n
LEFT JOIN perdure.audit a ON a.name = n.name;

-- Write the audit if its version is the next one, and read it.
CREATE OR REPLACE FUNCTION perdure.audits(changes perdure.audit_in[]) RETURNS SETOF perdure.audit_out
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
#variable_conflict use_column
BEGIN
    IF cardinality(changes) > 0 THEN
        INSERT INTO perdure.audit AS k
        SELECT c.name, c.version, perdure.instant(c.due_at), c.worker, c.place, perdure.instant(c.begun_at), c.checked,
               c.found, c.rounds, perdure.instant(c.ended_at), c.line
        FROM unnest(changes) AS c
        WHERE c.version = 1 OR EXISTS (SELECT FROM perdure.audit k WHERE k.name = c.name)
        ON CONFLICT (name) DO UPDATE SET
            version = excluded.version, due_at = excluded.due_at, worker = excluded.worker, place = excluded.place,
            begun_at = excluded.begun_at, checked = excluded.checked, found = excluded.found, rounds = excluded.rounds,
            ended_at = excluded.ended_at, line = excluded.line
        WHERE excluded.version = k.version + 1;
    END IF;
    RETURN QUERY SELECT o.* FROM perdure.audit_out o;
END
$$;

-- The audit, for a login that may see it and not change it.
CREATE OR REPLACE FUNCTION perdure.audits_seen(changes perdure.audit_in[]) RETURNS SETOF perdure.audit_out
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(changes) > 0 THEN
        RAISE insufficient_privilege USING MESSAGE = 'this login may look, and change nothing';
    END IF;
    RETURN QUERY SELECT * FROM perdure.audits('{}');
END
$$;
