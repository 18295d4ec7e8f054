-- Which starts have the key of a guest whose transaction is open: to insert them would mean to wait for its end, and
-- everything else that is written would wait with them (rule 6). A guest holds the gate, which is closed to strangers, and
-- for each of its keys an advisory lock: the upper half is chance, so that nobody can take it first, the lower the hash of
-- that and the key. Advisory locks of sessions that do not hold the gate mean nothing.
CREATE OR REPLACE FUNCTION perdure.start_guarded(records perdure.start_in[]) RETURNS int[]
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    WITH guest AS MATERIALIZED (
        SELECT DISTINCT g.pid FROM pg_locks g
        WHERE g.locktype = 'relation' AND g.relation = 'perdure.gate'::regclass AND g.mode = 'ShareLock' AND g.granted
          AND g.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND g.pid <> pg_backend_pid()
    ), mark AS MATERIALIZED (
        SELECT l.classid, l.objid FROM guest JOIN pg_locks l ON l.pid = guest.pid
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
    )
    SELECT array_agg(u.n::int ORDER BY u.n)
    FROM unnest(records) WITH ORDINALITY AS u(id, kind, key, input, version, token, owner, lease, due_at, events,
                                              awaiting, code, created_at, opened_at, n)
    WHERE u.key IS NOT NULL AND EXISTS (
        SELECT FROM mark m WHERE m.objid = hashtext(m.classid::text || ' ' || u.kind || ' ' || u.key)::oid)
$$;
