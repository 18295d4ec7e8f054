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
