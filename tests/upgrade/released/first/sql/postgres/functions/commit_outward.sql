-- Write commits that also start children or send messages: all of it, or nothing of a commit that is not applied (law 3).
-- 1. Lock the rows that messages go to. A commit whose target somebody else holds is "blocked": then nothing at all is
--    written, and the client sends the batch again without it. Nothing waits for a lock, so no order of locks matters.
-- 2. Write the commits, then start the children and send the messages of those that were written now: a batch that is
--    sent again after an unknown outcome adds nothing (rule 5). Messages come after the commits: a parent and its child
--    may finish in one batch, and each row is changed by one statement at a time (rule 2).
CREATE OR REPLACE FUNCTION perdure.commit_outward(
    records perdure.commit_in[], rare perdure.commit_rare[], new_events perdure.event_in[], consumed perdure.consumed_in[],
    children perdure.start_in[], children_rare perdure.start_rare[], child_of int[], letters perdure.letter_in[],
    published uuid[],
    OUT now bigint, OUT inboxes int[], OUT odd int[], OUT verdicts text[], OUT blocked int[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    held uuid[];
BEGIN
    SELECT array_agg(l.id) INTO held
    FROM (
        SELECT p.id FROM (SELECT DISTINCT m.process FROM unnest(letters) AS m) AS u
        CROSS JOIN LATERAL (
            SELECT p.id FROM perdure.process p WHERE p.id = u.process FOR NO KEY UPDATE SKIP LOCKED) AS p
    ) AS l;
    SELECT array_agg(DISTINCT m.record) INTO blocked
    FROM unnest(letters) AS m
    WHERE (m.process = ANY (held)) IS NOT TRUE
      AND EXISTS (SELECT FROM perdure.process p WHERE p.id = m.process OFFSET 0);
    IF blocked IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT c.now, c.inboxes, c.odd, c.verdicts INTO now, inboxes, odd, verdicts
    FROM perdure.commit(records, rare, new_events, consumed, published) AS c;
    IF children IS NOT NULL THEN
        PERFORM perdure.start(array_agg(u.child ORDER BY u.n), array_agg(u.rare ORDER BY u.n), NULL, NULL, false, true)
        FROM (
            SELECT n, children[n] AS child, children_rare[n] AS rare
            FROM generate_subscripts(children, 1) AS n
            WHERE (child_of[n] = ANY (odd)) IS NOT TRUE) AS u
        HAVING count(*) > 0;
    END IF;
    IF letters IS NOT NULL THEN
        PERFORM perdure.send(array_agg(m.id ORDER BY m.n), array_agg(m.process ORDER BY m.n), array_agg(m.type ORDER BY m.n),
                             array_agg(m.name ORDER BY m.n), array_agg(m.payload ORDER BY m.n),
                             array_agg(m.key ORDER BY m.n), array_agg(m.sender ORDER BY m.n))
        FROM unnest(letters) WITH ORDINALITY AS m(record, id, process, type, name, payload, key, sender, n)
        WHERE (m.record = ANY (odd)) IS NOT TRUE
        HAVING count(*) > 0;
        PERFORM perdure.tell_freed(m.name)  -- the answer of a task bears the name of its kind
        FROM (SELECT DISTINCT l.name FROM unnest(letters) AS l WHERE starts_with(l.name, '@')) AS m;
    END IF;
END
$$;
