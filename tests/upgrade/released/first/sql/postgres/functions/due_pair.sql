-- Each kind and code of which running, unowned rows are due, or will be: one seek for each, however many rows there are.
CREATE OR REPLACE VIEW perdure.due_pair AS
WITH RECURSIVE pair AS (
    (SELECT p.kind, p.code FROM perdure.process p
     WHERE p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
     ORDER BY p.kind, p.code LIMIT 1)
    UNION ALL
    SELECT n.kind, n.code FROM pair CROSS JOIN LATERAL (
        SELECT p.kind, p.code FROM perdure.process p
        WHERE p.status = 'running' AND p.owner IS NULL AND NOT p.reminder AND p.deaths < 2
          AND (p.kind, p.code) > (pair.kind, pair.code)
        ORDER BY p.kind, p.code LIMIT 1) AS n
)
SELECT pair.kind, pair.code FROM pair;
