-- Store new processes together with the first messages to them; a start that is not created now sends nothing. Messages
-- know their start by its number. The new rows are locked by being new, so that no message can be "busy".
CREATE OR REPLACE FUNCTION perdure.start_telling(
    records perdure.start_in[], rare perdure.start_rare[], workers uuid[], new_events perdure.event_in[], keyed boolean,
    unowned boolean, letters perdure.letter_in[],
    OUT now bigint, OUT odd int[], OUT verdicts text[], OUT ids uuid[], OUT inboxes int[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    SELECT s.now, s.odd, s.verdicts, s.ids, s.inboxes INTO now, odd, verdicts, ids, inboxes
    FROM perdure.start(records, rare, workers, new_events, keyed, unowned) AS s;
    PERFORM perdure.send(array_agg(m.id ORDER BY m.n), array_agg(m.process ORDER BY m.n), array_agg(m.type ORDER BY m.n),
                         array_agg(m.name ORDER BY m.n), array_agg(m.payload ORDER BY m.n),
                         array_agg(m.key ORDER BY m.n), array_agg(m.sender ORDER BY m.n))
    FROM unnest(letters) WITH ORDINALITY AS m(record, id, process, type, name, payload, key, sender, n)
    WHERE (m.record = ANY (odd)) IS NOT TRUE
    HAVING count(*) > 0;
END
$$;
