-- End an incarnation once, if it has beaten no more than so often; afterwards nothing it sends counts (rules 11, 12).
CREATE OR REPLACE FUNCTION perdure.retire(worker uuid, most_beats bigint, by_death boolean) RETURNS boolean
LANGUAGE plpgsql SET lock_timeout = '5s' AS $$
#variable_conflict use_column
BEGIN
    UPDATE perdure.worker w SET ended_at = perdure.now(), due_at = NULL, died = by_death
    WHERE w.id = worker AND w.ended_at IS NULL AND (most_beats IS NULL OR w.beats <= most_beats);
    RETURN FOUND;
END
$$;
