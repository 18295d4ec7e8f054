-- Tell the workers that tasks of this kind have ended, if their queue has room for others now that it had not before.
CREATE OR REPLACE FUNCTION perdure.tell_freed(queued text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM perdure.queue q
        WHERE '@' || q.name = queued AND q.blocked_at IS NULL
          AND (q.concurrency IS NOT NULL OR q.share_concurrency IS NOT NULL)
    ) THEN
        PERFORM perdure.tell_due(ARRAY[queued], NULL);
    END IF;
END
$$;
