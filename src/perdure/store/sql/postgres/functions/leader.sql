-- The rows of leaders.

-- A leader as a program reads it: the columns in the order of the record's fields, times in microseconds.
CREATE OR REPLACE VIEW perdure.leader_out AS
SELECT l.name, l.version, l.term, l.candidate, l.program, perdure.micros(l.since) AS since,
       perdure.micros(l.until) AS until, l.released, perdure.micros(l.changed_at) AS changed_at, l.who, l.why, l.origin
FROM perdure.leader l;

-- Write leaders, each only if its version is the next one, and read all there are. Candidates look by themselves.
CREATE OR REPLACE FUNCTION perdure.leaders(changes perdure.leader_in[]) RETURNS SETOF perdure.leader_out
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
#variable_conflict use_column
BEGIN
    IF cardinality(changes) > 0 THEN
        INSERT INTO perdure.leader AS k
        SELECT c.name, c.version, c.term, c.candidate, c.program, perdure.instant(c.since), perdure.instant(c.until),
               c.released, perdure.instant(c.changed_at), c.who, c.why, c.origin
        FROM unnest(changes) AS c
        WHERE c.version = 1 OR EXISTS (SELECT FROM perdure.leader k WHERE k.name = c.name)
        ORDER BY c.name
        ON CONFLICT (name) DO UPDATE SET
            version = excluded.version, term = excluded.term, candidate = excluded.candidate, program = excluded.program,
            since = excluded.since, until = excluded.until, released = excluded.released, changed_at = excluded.changed_at,
            who = excluded.who, why = excluded.why, origin = excluded.origin
        WHERE excluded.version = k.version + 1;
    END IF;
    RETURN QUERY SELECT o.* FROM perdure.leader_out o ORDER BY o.name;
END
$$;

-- The rows of the table, for a login that may see them and not change them.
CREATE OR REPLACE FUNCTION perdure.leaders_seen(changes perdure.leader_in[]) RETURNS SETOF perdure.leader_out
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(changes) > 0 THEN
        RAISE insufficient_privilege USING MESSAGE = 'this login may look, and change nothing';
    END IF;
    RETURN QUERY SELECT * FROM perdure.leaders('{}');
END
$$;
