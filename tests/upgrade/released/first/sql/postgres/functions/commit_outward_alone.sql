-- Write one commit that also starts children or sends messages, at half the cost of a batch of one: the fence and all
-- that the process writes for itself are perdure.commit_alone's. What is not as usual is left to perdure.commit_outward.
CREATE OR REPLACE FUNCTION perdure.commit_outward_alone(
    one perdure.commit_in, rare perdure.commit_rare, new_events perdure.event_in[], consumed perdure.consumed_in[],
    children perdure.start_in[], children_rare perdure.start_rare[], letters perdure.letter_in[], published uuid[],
    OUT now bigint, OUT inboxes int[], OUT odd int[], OUT verdicts text[], OUT blocked int[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    sent perdure.letter_in := letters[1];
BEGIN
    IF cardinality(letters) = 1 THEN
        PERFORM FROM perdure.process p WHERE p.id = sent.process FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    IF cardinality(letters) > 1 OR (letters IS NOT NULL AND NOT FOUND) THEN
        SELECT c.now, c.inboxes, c.odd, c.verdicts, c.blocked INTO now, inboxes, odd, verdicts, blocked
        FROM perdure.commit_outward(
            ARRAY[one], CASE WHEN NOT (rare IS NULL) THEN ARRAY[rare] END, new_events, consumed, children, children_rare,
            CASE WHEN children IS NOT NULL THEN array_fill(1, ARRAY[cardinality(children)]) END, letters, published) AS c;
        RETURN;
    END IF;
    SELECT c.now, c.inboxes, c.odd, c.verdicts INTO now, inboxes, odd, verdicts
    FROM perdure.commit_alone(one, rare, new_events, consumed, published) AS c;
    IF odd IS NOT NULL THEN
        RETURN;  -- not written now, and what was sent out with it was sent when it was
    END IF;
    IF children IS NOT NULL THEN
        PERFORM perdure.start(children, children_rare, NULL, NULL, false, true);
    END IF;
    IF letters IS NOT NULL THEN
        PERFORM perdure.send_alone(sent.id, sent.process, sent.type, sent.name, sent.payload, sent.key, sent.sender);
        IF starts_with(sent.name, '@') THEN
            PERFORM perdure.tell_freed(sent.name);  -- the answer of a task bears the name of its kind
        END IF;
    END IF;
END
$$;
