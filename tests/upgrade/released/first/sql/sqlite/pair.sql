-- name: create_due_pair
-- Each kind and code of which running, unowned rows are due, or will be: a few seeks for each, however many rows there are.
CREATE TEMP VIEW due_pair AS
WITH RECURSIVE
pair (kind, code) AS (
    SELECT * FROM (
        SELECT kind, code FROM main.process INDEXED BY process_due
        WHERE status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2 ORDER BY kind, code LIMIT 1
    )
    UNION ALL
    SELECT
        coalesce((
            SELECT kind FROM main.process INDEXED BY process_due
            WHERE status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2
            AND kind = pair.kind AND code > pair.code LIMIT 1
        ), (
            SELECT kind FROM main.process INDEXED BY process_due
            WHERE status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2 AND kind > pair.kind ORDER BY kind LIMIT 1
        )),
        coalesce((
            SELECT code FROM main.process INDEXED BY process_due
            WHERE status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2
            AND kind = pair.kind AND code > pair.code ORDER BY code LIMIT 1
        ), (
            SELECT code FROM main.process INDEXED BY process_due
            WHERE status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2
            AND kind > pair.kind ORDER BY kind, code LIMIT 1
        ))
    FROM pair WHERE pair.kind IS NOT NULL
)
SELECT kind, code FROM pair WHERE kind IS NOT NULL
