-- Put messages into inboxes (rules 2, 3, 4): lock the targets, leave out what is known, number by inbox, wake, answer.
CREATE OR REPLACE FUNCTION perdure.send(
    m_id uuid[], m_process uuid[], m_type int[], m_name text[], m_payload bytea[], m_key text[], m_sender bytea[],
    OUT now bigint, OUT verdicts text[], OUT numbers int[], OUT owners uuid[]
) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t      timestamptz;
    held   int[];
    locked boolean[] := array_fill(false, ARRAY[cardinality(m_id)]);
    n      int;
    wake   boolean;
BEGIN
    SELECT k.t INTO t FROM perdure.present k;
    now := perdure.micros(t);
    SELECT array_agg(l.n) INTO held
    FROM (
        SELECT u.n::int AS n FROM unnest(m_process) WITH ORDINALITY AS u(process, n)
        JOIN perdure.process p ON p.id = u.process
        ORDER BY u.process, u.n
        FOR NO KEY UPDATE OF p SKIP LOCKED
    ) AS l;
    FOREACH n IN ARRAY coalesce(held, '{}') LOOP
        locked[n] := true;
    END LOOP;
    WITH unknown AS (
        SELECT u.*, row_number() OVER (PARTITION BY u.process, u.id ORDER BY u.n) AS of_id,
               row_number() OVER (PARTITION BY u.process, u.key ORDER BY u.n) AS of_key
        FROM unnest(m_id, m_process, m_type, m_name, m_payload, m_key, m_sender)
             WITH ORDINALITY AS u(id, process, type, name, payload, key, sender, n)
        WHERE locked[u.n]
          AND NOT EXISTS (SELECT FROM perdure.message m WHERE m.process = u.process AND m.id = u.id)
          AND NOT EXISTS (SELECT FROM perdure.message m WHERE m.process = u.process AND m.key = u.key)
    ), put AS (
        INSERT INTO perdure.message (process, id, at, number, type, name, key, sender, payload)
        SELECT k.process, k.id, t, p.inbox + row_number() OVER (PARTITION BY k.process ORDER BY k.n), k.type, k.name,
               k.key, k.sender, k.payload
        FROM unknown k JOIN perdure.process p ON p.id = k.process
        WHERE k.of_id = 1 AND (k.key IS NULL OR k.of_key = 1)
        RETURNING process, number
    ), summed AS (
        SELECT put.process, max(put.number) AS inbox FROM put GROUP BY put.process
    ), raised AS (
        UPDATE perdure.process p SET
            inbox = s.inbox,
            due_at = CASE WHEN p.status <> 'running' OR p.owner IS NOT NULL THEN p.due_at
                          WHEN p.reminder THEN t ELSE least(p.due_at, t) END,
            reminder = p.reminder AND p.status <> 'running',
            changed_at = CASE WHEN p.status = 'running' AND p.owner IS NULL THEN t ELSE p.changed_at END
        FROM summed s WHERE p.id = s.process
        RETURNING p.status = 'running' AS running
    )
    SELECT bool_or(raised.running) INTO wake FROM raised;
    SELECT array_agg(a.verdict ORDER BY a.n), array_agg(a.number ORDER BY a.n), array_agg(a.owner ORDER BY a.n)
    INTO verdicts, numbers, owners
    FROM (
        SELECT u.n, p.owner, coalesce(same.number, other.number, 0) AS number, CASE
            WHEN p.id IS NULL THEN 'not found'
            WHEN same.number > p.seen AND p.due_at IS NULL THEN 'finished'
            WHEN same.number IS NOT NULL THEN 'delivered'
            WHEN other.number IS NOT NULL THEN 'duplicate'
            ELSE 'busy' END AS verdict
        FROM unnest(m_id, m_process, m_key) WITH ORDINALITY AS u(id, process, key, n)
        LEFT JOIN perdure.process p ON p.id = u.process
        LEFT JOIN perdure.message same ON same.process = u.process AND same.id = u.id
        LEFT JOIN perdure.message other ON other.process = u.process AND other.key = u.key
    ) AS a;
    IF wake THEN
        PERFORM pg_notify('perdure_due', '');
    END IF;
END
$$;
