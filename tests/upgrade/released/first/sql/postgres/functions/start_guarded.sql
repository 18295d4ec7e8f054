-- Which starts have the key of a guest whose transaction is open: to insert them would mean to wait for its end, and
-- everything else that is written would wait with them (rule 6). Guests hold a lock for each of their keys.
CREATE OR REPLACE FUNCTION perdure.start_guarded(records perdure.start_in[]) RETURNS int[] LANGUAGE sql VOLATILE AS $$
    SELECT array_agg(u.n::int ORDER BY u.n)
    FROM unnest(records) WITH ORDINALITY AS u(id, kind, key, input, version, token, owner, lease, due_at, events,
                                              awaiting, code, created_at, opened_at, n)
    WHERE u.key IS NOT NULL AND hashtext(u.kind || ' ' || u.key)::oid = ANY (ARRAY(
        SELECT l.objid FROM pg_catalog.pg_locks l
        WHERE l.locktype = 'advisory' AND l.classid = 1346720324 AND l.objsubid = 2 AND l.granted
          AND l.pid <> pg_backend_pid()))
$$;
