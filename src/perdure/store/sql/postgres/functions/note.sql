-- The notes of workers.

-- A note as a worker reads it: the columns in the order of the record's fields, times in microseconds.
CREATE OR REPLACE VIEW perdure.note_out AS
SELECT n.name, n.version, perdure.micros(n.changed_at) AS changed_at, n.content FROM perdure.note n;

-- Write notes, each only if its version is the next one, and read all there are. Nobody waits for them.
CREATE OR REPLACE FUNCTION perdure.notes(changes perdure.note_in[]) RETURNS SETOF perdure.note_out
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
#variable_conflict use_column
BEGIN
    IF cardinality(changes) > 0 THEN
        INSERT INTO perdure.note AS k
        SELECT c.name, c.version, perdure.instant(c.changed_at), c.content
        FROM unnest(changes) AS c
        WHERE c.version = 1 OR EXISTS (SELECT FROM perdure.note k WHERE k.name = c.name)
        ORDER BY c.name
        ON CONFLICT (name) DO UPDATE SET
            version = excluded.version, changed_at = excluded.changed_at, content = excluded.content
        WHERE excluded.version = k.version + 1;
    END IF;
    RETURN QUERY SELECT o.* FROM perdure.note_out o ORDER BY o.name;
END
$$;

-- The rows of the table, for a login that may see them and not change them.
CREATE OR REPLACE FUNCTION perdure.notes_seen(changes perdure.note_in[]) RETURNS SETOF perdure.note_out
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF cardinality(changes) > 0 THEN
        RAISE insufficient_privilege USING MESSAGE = 'this login may look, and change nothing';
    END IF;
    RETURN QUERY SELECT * FROM perdure.notes('{}');
END
$$;
