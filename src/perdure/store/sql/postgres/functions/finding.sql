-- What checks have found, and how far the checks in the background have come.

-- Write findings, each only if its version is the next one, remove those that say so, and read all there are.
CREATE OR REPLACE FUNCTION perdure.keptfindings(changes perdure.kept_finding_in[]) RETURNS SETOF perdure.kept_finding_in
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
    RETURN QUERY
    SELECT f.name, f.version, f.law, f.process, f.kind, f.text, perdure.micros(f.since), perdure.micros(f.seen_at),
           perdure.micros(f.gone_at), f.mended_by, f.mended, false
    FROM perdure.finding f ORDER BY f.name;
END
$$;

-- The rows of the table, for a login that may see them and not change them.
CREATE OR REPLACE FUNCTION perdure.keptfindings_seen(changes perdure.kept_finding_in[])
RETURNS SETOF perdure.kept_finding_in
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(changes) > 0 THEN
        RAISE insufficient_privilege USING MESSAGE = 'this login may look, and change nothing';
    END IF;
    RETURN QUERY SELECT * FROM perdure.keptfindings('{}');
END
$$;

-- Write the audit if its version is the next one, and read it. Before it is first written it is as new, and knows the line
-- that the database is on, unless another line was drawn since the database was made: then that one is news. No view stands
-- between, and the clock is read first: pg_restore --clean takes the locks in this order, and nobody waits for the other.
CREATE OR REPLACE FUNCTION perdure.audits(changes perdure.audit_in[]) RETURNS SETOF perdure.audit_in
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    now_on text := (SELECT d.oid || '/' || coalesce(c.line::text, '')
                    FROM perdure.clock c, pg_database d WHERE d.datname = current_database());
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
    RETURN QUERY
    SELECT 'background', coalesce(a.version, 0), coalesce(perdure.micros(a.due_at), 0), coalesce(a.worker, ''),
           coalesce(a.place, '[]'), coalesce(perdure.micros(a.begun_at), 0), coalesce(a.checked, 0),
           coalesce(a.found, 0), coalesce(a.rounds, 0), perdure.micros(a.ended_at),
           coalesce(a.line, CASE WHEN c.line_at IS NULL THEN now_on ELSE '' END), now_on
    FROM perdure.clock c LEFT JOIN perdure.audit a ON a.name = 'background';
END
$$;

-- The audit, for a login that may see it and not change it.
CREATE OR REPLACE FUNCTION perdure.audits_seen(changes perdure.audit_in[]) RETURNS SETOF perdure.audit_in
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(changes) > 0 THEN
        RAISE insufficient_privilege USING MESSAGE = 'this login may look, and change nothing';
    END IF;
    RETURN QUERY SELECT * FROM perdure.audits('{}');
END
$$;
