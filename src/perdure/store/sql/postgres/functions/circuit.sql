-- The circuits of breakers.

-- A circuit as a worker reads it: the columns in the order of the record's fields, times in microseconds.
CREATE OR REPLACE VIEW perdure.circuit_out AS
SELECT c.name, c.version, c.state, perdure.micros(c.since) AS since, perdure.micros(c.until) AS until, c.reason, c.forced,
       c.opened, c.failures, perdure.micros(c.counted_from) AS counted_from, c.probes, c.successes,
       c.worker, perdure.micros(c.changed_at) AS changed_at, c.who, c.why, c.origin
FROM perdure.circuit c;

-- Write circuits, each only if its version is the next one, and read all there are. Workers that wait look by themselves.
CREATE OR REPLACE FUNCTION perdure.circuits(changes perdure.circuit_in[]) RETURNS SETOF perdure.circuit_out
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
#variable_conflict use_column
BEGIN
    IF cardinality(changes) > 0 THEN
        INSERT INTO perdure.circuit AS k
        SELECT c.name, c.version, c.state, perdure.instant(c.since), perdure.instant(c.until), c.reason, c.forced,
               c.opened, c.failures, perdure.instant(c.counted_from), c.probes, c.successes,
               c.worker, perdure.instant(c.changed_at), c.who, c.why, c.origin
        FROM unnest(changes) AS c
        WHERE c.version = 1 OR EXISTS (SELECT FROM perdure.circuit k WHERE k.name = c.name)
        ORDER BY c.name
        ON CONFLICT (name) DO UPDATE SET
            version = excluded.version, state = excluded.state, since = excluded.since, until = excluded.until,
            reason = excluded.reason, forced = excluded.forced, opened = excluded.opened, failures = excluded.failures,
            counted_from = excluded.counted_from, probes = excluded.probes, successes = excluded.successes,
            worker = excluded.worker, changed_at = excluded.changed_at, who = excluded.who, why = excluded.why, origin = excluded.origin
        WHERE excluded.version = k.version + 1;
    END IF;
    RETURN QUERY SELECT o.* FROM perdure.circuit_out o ORDER BY o.name;
END
$$;

-- The rows of the table, for a login that may see them and not change them.
CREATE OR REPLACE FUNCTION perdure.circuits_seen(changes perdure.circuit_in[]) RETURNS SETOF perdure.circuit_out
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(changes) > 0 THEN
        RAISE insufficient_privilege USING MESSAGE = 'this login may look, and change nothing';
    END IF;
    RETURN QUERY SELECT * FROM perdure.circuits('{}');
END
$$;
