-- What workers are told: that something is due, that values are published, that a queue has room.

-- Tell the workers which kinds of processes have become due, and which processes if they are few; "ids" is null if it
-- is not known. If there are too many to name, the payload is empty: look for all that is due.
CREATE OR REPLACE FUNCTION perdure.tell_due(kinds text[], ids uuid[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    named text[] := CASE WHEN cardinality(kinds) = 1 THEN kinds ELSE ARRAY(SELECT DISTINCT k FROM unnest(kinds) AS k) END;
BEGIN
    PERFORM pg_notify('perdure_due', CASE
        WHEN cardinality(named) > 16 THEN ''
        WHEN cardinality(ids) <= 32 THEN json_build_object('kinds', named, 'due', ARRAY(
            SELECT encode(uuid_send(id), 'base64') FROM unnest(ids) AS id))::text
        ELSE json_build_object('kinds', named)::text END);
END
$$;

-- Tell the followers of published values and of answers which processes have new ones. A payload names 200 of them at most,
-- since it has 8,000 bytes; one that is empty, as releases before sent it, says that any may have.
CREATE OR REPLACE FUNCTION perdure.tell_published(processes uuid[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('perdure_published', array_to_string(processes[n:n + 199], ' '))
    FROM generate_series(1, cardinality(processes), 200) AS n;
END
$$;

-- Tell the workers that tasks of this kind have ended, if their queue may have been full and has room now.
CREATE OR REPLACE FUNCTION perdure.tell_freed(queued text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
