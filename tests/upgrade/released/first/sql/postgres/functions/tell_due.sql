-- Tell the workers which kinds of processes have become due, and which processes if they are few; "ids" is null if it
-- is not known. What is too much to be named is told of by an empty payload: look for all that is due.
CREATE OR REPLACE FUNCTION perdure.tell_due(kinds text[], ids uuid[]) RETURNS void LANGUAGE plpgsql AS $$
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
