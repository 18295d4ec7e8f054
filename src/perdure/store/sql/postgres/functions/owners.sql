-- Every worker that owns a process: one index seek per owner, however many processes it owns.
CREATE OR REPLACE FUNCTION perdure.owners() RETURNS SETOF uuid LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_material = off SET jit = off AS $$
    WITH RECURSIVE one(owner) AS (
        (SELECT p.owner FROM perdure.process p WHERE p.owner IS NOT NULL ORDER BY p.owner LIMIT 1)
        UNION ALL
        SELECT (SELECT p.owner FROM perdure.process p WHERE p.owner > one.owner ORDER BY p.owner LIMIT 1)
        FROM one WHERE one.owner IS NOT NULL
    )
    SELECT one.owner FROM one WHERE one.owner IS NOT NULL
$$;
