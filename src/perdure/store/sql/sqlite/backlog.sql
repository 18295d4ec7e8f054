-- name: read_backlogs
-- How many unfinished processes of each kind and version no worker owns, each counted up to 1,000: a few seeks for each
-- kind and version, however many processes there are.
WITH RECURSIVE
asleep (kind, code) AS (
    SELECT * FROM (
        SELECT kind, code FROM process INDEXED BY process_asleep WHERE reminder = 1 ORDER BY kind, code LIMIT 1
    )
    UNION ALL
    SELECT
        coalesce((
            SELECT kind FROM process INDEXED BY process_asleep
            WHERE reminder = 1 AND kind = asleep.kind AND code > asleep.code LIMIT 1
        ), (
            SELECT kind FROM process INDEXED BY process_asleep
            WHERE reminder = 1 AND kind > asleep.kind ORDER BY kind LIMIT 1
        )),
        coalesce((
            SELECT code FROM process INDEXED BY process_asleep
            WHERE reminder = 1 AND kind = asleep.kind AND code > asleep.code ORDER BY code LIMIT 1
        ), (
            SELECT code FROM process INDEXED BY process_asleep
            WHERE reminder = 1 AND kind > asleep.kind ORDER BY kind, code LIMIT 1
        ))
    FROM asleep WHERE asleep.kind IS NOT NULL
),
pairs (kind, code) AS (
    SELECT kind, code FROM due_pair
    UNION SELECT kind, code FROM asleep WHERE kind IS NOT NULL
    UNION SELECT kind, code FROM process INDEXED BY process_suspect
    WHERE status = 1 AND owner IS NULL AND reminder = 0 AND deaths >= 2
)
SELECT json_group_array(json_array(kind, code, min(processes, 1000))) FROM (
    SELECT kind, code, (
        SELECT count(*) FROM (
            SELECT 1 FROM process INDEXED BY process_due WHERE kind = pairs.kind AND code = pairs.code
            AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2 LIMIT 1000
        )
    ) + (
        SELECT count(*) FROM (
            SELECT 1 FROM process INDEXED BY process_asleep
            WHERE kind = pairs.kind AND code = pairs.code AND reminder = 1 LIMIT 1000
        )
    ) + (
        SELECT count(*) FROM (
            SELECT 1 FROM process INDEXED BY process_suspect WHERE kind = pairs.kind AND code = pairs.code
            AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths >= 2 LIMIT 1000
        )
    ) AS processes
    FROM pairs ORDER BY kind, code
)
