-- Why starts were not created: the incarnation has ended, it was the same start, or who has the key (rules 3 and 24).
-- Runs in a statement of its own after the insert, so that the row behind a conflict is seen.
CREATE OR REPLACE FUNCTION perdure.start_existing(
    records perdure.start_in[], gone uuid[], fresh boolean[], t timestamptz
) RETURNS TABLE (n int, verdict text, id uuid, inbox int) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT r.n, CASE WHEN same.id IS NOT NULL OR kept.process = r.id THEN 'created'
                     WHEN other.input = r.input OR kept.digest = sha256(r.input) THEN 'already exists'
                     WHEN other.id IS NOT NULL OR kept.process IS NOT NULL THEN 'conflict'
                     WHEN r.owner = ANY (gone) THEN 'refused' END,
           coalesce(same.id, other.id, kept.process, r.id),
           coalesce(same.inbox, other.inbox, 0)
    FROM generate_subscripts(records, 1) AS place(n)
    CROSS JOIN LATERAL (SELECT place.n, (records[place.n]).*) AS r
    LEFT JOIN LATERAL (SELECT p.id, p.inbox FROM perdure.process p WHERE p.id = r.id LIMIT 1) AS same ON true
    LEFT JOIN LATERAL (
        SELECT p.id, p.inbox, p.input FROM perdure.process p
        WHERE p.kind = r.kind AND p.key = r.key AND same.id IS NULL LIMIT 1) AS other ON true
    LEFT JOIN LATERAL (
        SELECT k.process, k.digest FROM perdure.key_kept k
        WHERE k.kind = r.kind AND k.key = r.key AND (k.due_at > t) IS TRUE AND other.id IS NULL AND same.id IS NULL
        LIMIT 1) AS kept ON true
    WHERE NOT fresh[r.n];
    IF EXISTS (
        SELECT FROM generate_subscripts(records, 1) AS place(n)
        CROSS JOIN LATERAL (SELECT place.n, (records[place.n]).*) AS r
        WHERE NOT fresh[r.n] AND (r.owner = ANY (gone)) IS NOT TRUE
          AND NOT EXISTS (SELECT FROM perdure.process p WHERE p.id = r.id OFFSET 0)
          AND NOT EXISTS (SELECT FROM perdure.process p WHERE p.kind = r.kind AND p.key = r.key OFFSET 0)
          AND NOT EXISTS (
              SELECT FROM perdure.key_kept k WHERE k.kind = r.kind AND k.key = r.key AND (k.due_at > t) IS TRUE OFFSET 0)
    ) THEN
        -- The row in the way was pruned between two statements: begin again.
        RAISE serialization_failure;
    END IF;
END
$$;
