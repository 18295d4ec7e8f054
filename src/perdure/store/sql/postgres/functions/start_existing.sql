-- Why starts were not created: the incarnation has ended, it was the same start, or who has the key (rules 3 and 24).
-- Runs in a statement of its own after the insert, so that the row behind a conflict is seen.
CREATE OR REPLACE FUNCTION perdure.start_existing(
    s_id uuid[], s_kind text[], s_key text[], s_input bytea[], s_owner uuid[], gone uuid[], fresh boolean[], t timestamptz
) RETURNS TABLE (n int, verdict text, id uuid, inbox int) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT u.n::int,
           CASE WHEN same.id IS NOT NULL OR kept.process = u.id THEN 'created'
                WHEN other.input = u.input OR kept.digest = sha256(u.input) THEN 'already exists'
                WHEN other.id IS NOT NULL OR kept.process IS NOT NULL THEN 'conflict'
                WHEN u.owner = ANY (gone) THEN 'refused' END,
           coalesce(same.id, other.id, kept.process, u.id),
           coalesce(same.inbox, other.inbox, 0)
    FROM unnest(s_id, s_kind, s_key, s_input, s_owner, fresh) WITH ORDINALITY AS u(id, kind, key, input, owner, fresh, n)
    LEFT JOIN perdure.process same ON same.id = u.id
    LEFT JOIN perdure.process other ON other.kind = u.kind AND other.key = u.key AND u.key IS NOT NULL AND same.id IS NULL
    LEFT JOIN perdure.key_kept kept ON kept.kind = u.kind AND kept.key = u.key AND kept.due_at > t AND other.id IS NULL
         AND same.id IS NULL
    WHERE NOT u.fresh;
    IF EXISTS (
        SELECT FROM unnest(s_id, s_kind, s_key, s_owner, fresh) AS u(id, kind, key, owner, fresh)
        WHERE NOT u.fresh AND (u.owner = ANY (gone)) IS NOT TRUE
          AND NOT EXISTS (SELECT FROM perdure.process p WHERE p.id = u.id)
          AND NOT EXISTS (SELECT FROM perdure.process p WHERE p.kind = u.kind AND p.key = u.key)
          AND NOT EXISTS (SELECT FROM perdure.key_kept k WHERE k.kind = u.kind AND k.key = u.key AND k.due_at > t)
    ) THEN
        -- The row in the way was pruned between two statements: begin again.
        RAISE serialization_failure;
    END IF;
END
$$;
