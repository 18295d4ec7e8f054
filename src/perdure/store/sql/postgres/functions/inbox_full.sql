-- Which of these messages their inboxes have no room for; null if there is room for all, as nearly always. Their rows are
-- locked. What is known already is not refused: it is answered as the first time. One letter has room in every empty inbox.
CREATE OR REPLACE FUNCTION perdure.inbox_full(
    m_id uuid[], m_process uuid[], m_type int[], m_payload bytea[], m_key text[], locked boolean[], most int,
    most_bytes bigint
) RETURNS boolean[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    refused boolean[];
    one     record;
    target  uuid;
    count   int;
    bytes   bigint;
BEGIN
    IF NOT EXISTS (
        SELECT FROM (
            SELECT u.process, count(*) AS letters, sum(octet_length(u.payload)) AS bytes
            FROM unnest(m_process, m_type, m_payload) AS u(process, type, payload) WHERE u.type IN (1, 7)
            GROUP BY u.process) AS s
        CROSS JOIN LATERAL (
            SELECT p.waiting, p.waiting_bytes FROM perdure.process p WHERE p.id = s.process LIMIT 1) AS p
        WHERE coalesce(p.waiting, 0) + s.letters > most OR coalesce(p.waiting_bytes, 0) + s.bytes > most_bytes
    ) THEN
        RETURN NULL;
    END IF;
    refused := array_fill(false, ARRAY[cardinality(m_id)]);
    FOR one IN
        SELECT u.n, u.id, u.process, u.type, octet_length(u.payload) AS size, p.waiting, p.waiting_bytes,
               EXISTS (SELECT FROM perdure.message m WHERE m.id = u.id AND m.process IS NOT DISTINCT FROM u.process OFFSET 0)
               OR EXISTS (
                   SELECT FROM perdure.message m
                   WHERE m.key = u.key AND (m.key, m.process) >= (u.key, u.process)
                     AND (m.key, m.process) <= (u.key, u.process) OFFSET 0)
               OR EXISTS (
                   SELECT FROM unnest(m_id, m_process, m_key) WITH ORDINALITY AS o(id, process, key, n)
                   WHERE o.n < u.n AND o.process = u.process AND NOT refused[o.n] AND (o.id = u.id OR o.key = u.key)
               ) AS known
        FROM unnest(m_id, m_process, m_type, m_payload, m_key) WITH ORDINALITY AS u(id, process, type, payload, key, n)
        CROSS JOIN LATERAL (
            SELECT p.waiting, p.waiting_bytes FROM perdure.process p WHERE p.id = u.process LIMIT 1) AS p
        WHERE u.type IN (1, 7) AND locked[u.n]
        ORDER BY u.process, u.n
    LOOP
        IF one.process IS DISTINCT FROM target THEN
            target := one.process;
            count := coalesce(one.waiting, 0);
            bytes := coalesce(one.waiting_bytes, 0);
        END IF;
        IF one.known THEN
            CONTINUE;
        ELSIF count > 0 AND (count >= most OR bytes + one.size > most_bytes) THEN
            refused[one.n] := true;
        ELSE
            count := count + 1;
            bytes := bytes + one.size;
        END IF;
    END LOOP;
    RETURN refused;
END
$$;
