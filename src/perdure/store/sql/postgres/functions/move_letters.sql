-- Consume messages, each by the event that records it. A letter without an event (0) stays in the inbox, marked, until its
-- process receives it; one that was received is put back. The rows count what waits.
CREATE OR REPLACE FUNCTION perdure.move_letters(
    records perdure.commit_in[], consumed perdure.consumed_in[], fits boolean[]
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    WITH moved AS (
        UPDATE perdure.message m SET
            consumed_run = CASE WHEN x.event > 0 THEN (records[x.record]).run END,
            consumed_by = nullif(x.event, 0),
            waits = CASE WHEN x.event = 0 THEN true END
        FROM (
            SELECT u.record, u.event, l.place, l.letters FROM unnest(consumed) AS u
            CROSS JOIN LATERAL (
                SELECT m.ctid AS place,
                       CASE WHEN m.type NOT IN (1, 7) THEN 0 WHEN u.event > 0 THEN -1
                            WHEN m.consumed_by IS NOT NULL THEN 1 ELSE 0 END AS letters
                FROM perdure.message m
                WHERE m.process = (records[u.record]).id AND m.number = u.number
                  AND (m.consumed_by IS NULL OR u.event = 0)
                OFFSET 0) AS l
            WHERE fits IS NULL OR fits[u.record]) AS x
        WHERE m.ctid = x.place
        RETURNING m.process, x.letters, x.letters * octet_length(m.payload) AS bytes
    ), summed AS (
        SELECT moved.process, sum(moved.letters)::int AS letters, sum(moved.bytes) AS bytes
        FROM moved WHERE moved.letters <> 0 GROUP BY moved.process
    )
    UPDATE perdure.process p SET
        waiting = greatest(0, coalesce(p.waiting, 0) + s.letters),
        waiting_bytes = greatest(0, coalesce(p.waiting_bytes, 0) + s.bytes)
    FROM (
        SELECT summed.letters, summed.bytes, l.place FROM summed
        CROSS JOIN LATERAL (
            SELECT p.ctid AS place FROM perdure.process p WHERE p.id = summed.process LIMIT 1) AS l) AS s
    WHERE p.ctid = s.place;
END
$$;
