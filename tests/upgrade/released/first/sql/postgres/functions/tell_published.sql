-- Tell those who follow published values which processes have some now; too many to be named: that any may have.
CREATE OR REPLACE FUNCTION perdure.tell_published(processes uuid[]) RETURNS void LANGUAGE sql AS $$
    SELECT pg_notify('perdure_published', CASE WHEN cardinality(processes) < 200 THEN array_to_string(processes, ' ') ELSE '' END)
$$;
