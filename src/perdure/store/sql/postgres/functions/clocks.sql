-- The clock as people see it (kernel/clock.py), after a change whose version is the next one; only "mending" is theirs.
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
