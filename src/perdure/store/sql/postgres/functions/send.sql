-- Messages into inboxes: a batch, one alone, and those of a login that may send nothing else.

-- Which of these messages find their inbox full; null if none does, as nearly always. The rows of the targets are locked. A
-- message that is known already is not refused: it is answered as the first time. Nor is the twin of one that this batch has
-- brought before, if that one had room. An empty inbox has room for any letter.
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
    ids     uuid[];
    keys    text[];
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
        SELECT u.n, u.id, u.process, u.key, u.type IN (1, 7) AS letter, octet_length(u.payload) AS size, p.waiting,
               p.waiting_bytes,
               EXISTS (SELECT FROM perdure.message m WHERE m.id = u.id AND m.process IS NOT DISTINCT FROM u.process OFFSET 0)
               OR EXISTS (
                   SELECT FROM perdure.message m
                   WHERE m.key = u.key AND (m.key, m.process) >= (u.key, u.process)
                     AND (m.key, m.process) <= (u.key, u.process) OFFSET 0) AS known
        FROM unnest(m_id, m_process, m_type, m_payload, m_key) WITH ORDINALITY AS u(id, process, type, payload, key, n)
        CROSS JOIN LATERAL (
            SELECT p.waiting, p.waiting_bytes FROM perdure.process p WHERE p.id = u.process LIMIT 1) AS p
        WHERE locked[u.n]
        ORDER BY u.process, u.n
    LOOP
        IF one.process IS DISTINCT FROM target THEN
            target := one.process;
            ids := '{}';
            keys := '{}';
            count := coalesce(one.waiting, 0);
            bytes := coalesce(one.waiting_bytes, 0);
        END IF;
        IF one.known OR one.id = ANY (ids) OR one.key = ANY (keys) THEN
            CONTINUE;
        ELSIF one.letter AND count > 0 AND (count >= most OR bytes + one.size > most_bytes) THEN
            refused[one.n] := true;
            CONTINUE;
        END IF;
        ids := ids || one.id;
        keys := keys || one.key;
        IF one.letter THEN
            count := count + 1;
            bytes := bytes + one.size;
        END IF;
    END LOOP;
    RETURN refused;
END
$$;

-- Put messages into inboxes (rules 2, 3, 4): lock the targets, leave out what is known, number by inbox, wake, answer.
-- Rows are looked for in subqueries that the planner cannot turn into joins, in a form that only one index can answer: a
-- plan made while the tables were tiny must stay right when they are not (rule 8).
-- A signal or a call that finds the inbox full is refused: "full". Null limits refuse nothing.
CREATE OR REPLACE FUNCTION perdure.send_within(
    m_id uuid[], m_process uuid[], m_type int[], m_name text[], m_payload bytea[], m_key text[], m_sender bytea[],
    most int, most_bytes bigint,
    OUT now bigint, OUT verdicts text[], OUT numbers int[], OUT owners uuid[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t      timestamptz;
    held   int[];
    locked boolean[] := array_fill(false, ARRAY[cardinality(m_id)]);
    n      int;
    kinds  text[];
    woken  uuid[];
    told   text;
    refused boolean[];
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);  -- what is accepted is on disk, whatever the server says
    END IF;
    SELECT k.t INTO t FROM perdure.present k;
    now := perdure.micros(t);
    -- Lock each target once: if another session freed it between two messages, the second would arrive without the first.
    SELECT array_agg(one.n) INTO held
    FROM (
        SELECT u.places FROM (
            SELECT o.process, array_agg(o.n::int) AS places FROM unnest(m_process) WITH ORDINALITY AS o(process, n)
            GROUP BY o.process ORDER BY o.process) AS u
        CROSS JOIN LATERAL (SELECT FROM perdure.process p WHERE p.id = u.process FOR NO KEY UPDATE SKIP LOCKED) AS p
    ) AS l CROSS JOIN LATERAL unnest(l.places) AS one(n);
    FOREACH n IN ARRAY coalesce(held, '{}') LOOP
        locked[n] := true;
    END LOOP;
    IF most IS NOT NULL THEN
        refused := perdure.inbox_full(m_id, m_process, m_type, m_payload, m_key, locked, most, most_bytes);
    END IF;
    WITH unknown AS (
        SELECT u.*, row_number() OVER (PARTITION BY u.process, u.id ORDER BY u.n) AS of_id,
               row_number() OVER (PARTITION BY u.process, u.key ORDER BY u.n) AS of_key
        FROM unnest(m_id, m_process, m_type, m_name, m_payload, m_key, m_sender)
             WITH ORDINALITY AS u(id, process, type, name, payload, key, sender, n)
        WHERE locked[u.n] AND (refused IS NULL OR NOT refused[u.n])
          AND NOT EXISTS (
              SELECT FROM perdure.message m WHERE m.id = u.id AND m.process IS NOT DISTINCT FROM u.process OFFSET 0)
          AND NOT EXISTS (
              SELECT FROM perdure.message m
              WHERE m.key = u.key AND (m.key, m.process) >= (u.key, u.process)
                AND (m.key, m.process) <= (u.key, u.process) OFFSET 0)
    ), put AS (
        INSERT INTO perdure.message (process, id, at, number, type, name, key, sender, payload)
        SELECT k.process, k.id, t, p.inbox + row_number() OVER (PARTITION BY k.process ORDER BY k.n), k.type, k.name,
               k.key, k.sender, k.payload
        FROM unknown k
        CROSS JOIN LATERAL (SELECT p.inbox FROM perdure.process p WHERE p.id = k.process LIMIT 1) AS p
        WHERE k.of_id = 1 AND (k.key IS NULL OR k.of_key = 1)
        RETURNING process, number, type IN (1, 7) AS letter, octet_length(payload) AS bytes
    ), summed AS (
        SELECT put.process, max(put.number) AS inbox, nullif(count(*) FILTER (WHERE put.letter), 0)::int AS letters,
               sum(put.bytes) FILTER (WHERE put.letter) AS bytes
        FROM put GROUP BY put.process
    ), raised AS (
        UPDATE perdure.process p SET
            inbox = s.inbox,
            waiting = CASE WHEN s.letters IS NULL THEN p.waiting ELSE coalesce(p.waiting, 0) + s.letters END,
            waiting_bytes = CASE WHEN s.letters IS NULL THEN p.waiting_bytes ELSE coalesce(p.waiting_bytes, 0) + s.bytes END,
            due_at = CASE WHEN p.status <> 'running' OR p.owner IS NOT NULL THEN p.due_at
                          WHEN p.reminder THEN t ELSE least(p.due_at, t) END,
            reminder = p.reminder AND p.status <> 'running',
            changed_at = CASE WHEN p.status = 'running' AND p.owner IS NULL THEN t ELSE p.changed_at END
        FROM (
            SELECT o.inbox, o.letters, o.bytes, l.place FROM summed o
            CROSS JOIN LATERAL (SELECT p.ctid AS place FROM perdure.process p WHERE p.id = o.process LIMIT 1) AS l) AS s
        WHERE p.ctid = s.place
        RETURNING p.status = 'running' AND p.owner IS NULL AS free, p.status = 'running' AND p.owner IS NOT NULL AS held,
            p.id, p.kind
    )
    SELECT array_agg(raised.kind) FILTER (WHERE raised.free), array_agg(raised.id) FILTER (WHERE raised.free),
           string_agg(raised.id::text, ' ') FILTER (WHERE raised.held)
    INTO kinds, woken, told FROM raised;
    SELECT array_agg(a.verdict ORDER BY a.n), array_agg(a.number ORDER BY a.n), array_agg(a.owner ORDER BY a.n)
    INTO verdicts, numbers, owners
    FROM (
        SELECT u.n, p.owner, coalesce(same.number, other.number, 0) AS number, CASE
            WHEN p.id IS NULL THEN 'not found'
            WHEN same.number > p.seen AND p.due_at IS NULL THEN 'finished'
            WHEN same.number IS NOT NULL THEN 'delivered'
            WHEN other.number IS NOT NULL THEN 'duplicate'
            WHEN refused[u.n] THEN 'full'
            ELSE 'busy' END AS verdict
        FROM unnest(m_id, m_process, m_key) WITH ORDINALITY AS u(id, process, key, n)
        LEFT JOIN LATERAL (
            SELECT p.id, p.owner, p.seen, p.due_at FROM perdure.process p WHERE p.id = u.process LIMIT 1) AS p ON true
        LEFT JOIN LATERAL (
            SELECT m.number FROM perdure.message m
            WHERE m.id = u.id AND m.process IS NOT DISTINCT FROM u.process LIMIT 1) AS same ON true
        LEFT JOIN LATERAL (
            SELECT m.number FROM perdure.message m
            WHERE m.key = u.key AND (m.key, m.process) >= (u.key, u.process)
              AND (m.key, m.process) <= (u.key, u.process) LIMIT 1) AS other ON true
    ) AS a;
    IF kinds IS NOT NULL THEN
        PERFORM perdure.tell_due(kinds, woken);
    END IF;
    IF told IS NOT NULL THEN
        PERFORM pg_notify('perdure_told', CASE WHEN length(told) < 7900 THEN told ELSE '' END);
    END IF;
END
$$;

-- Put the engine's own messages into inboxes (answers, wishes to cancel, signals of processes), and all messages of workers
-- of the release before: nothing is refused. See perdure.send_within.
CREATE OR REPLACE FUNCTION perdure.send(
    m_id uuid[], m_process uuid[], m_type int[], m_name text[], m_payload bytea[], m_key text[], m_sender bytea[],
    OUT now bigint, OUT verdicts text[], OUT numbers int[], OUT owners uuid[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT s.now, s.verdicts, s.numbers, s.owners INTO now, verdicts, numbers, owners
    FROM perdure.send_within(m_id, m_process, m_type, m_name, m_payload, m_key, m_sender, NULL, NULL) AS s;
END
$$;

-- Put one message into the inbox of a running process: what an idle system does most, at half the cost of a batch of
-- one. Any unusual case (the row is locked or does not run, the message is known or has a key, the inbox has no room) is
-- left to perdure.send_within. Null limits refuse nothing.
CREATE OR REPLACE FUNCTION perdure.send_alone_within(
    new_id uuid, target uuid, new_type int, new_name text, new_payload bytea, new_key text, new_sender bytea,
    most int, most_bytes bigint,
    OUT now bigint, OUT verdicts text[], OUT numbers int[], OUT owners uuid[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
SET enable_material = off SET jit = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '5s' AS $$
#variable_conflict use_column
DECLARE
    t         timestamptz;
    place     tid;
    its_owner uuid;
    its_inbox int;
    its_kind  text;
    letters   int;
    bytes     bigint;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);  -- what is accepted is on disk, whatever the server says
    END IF;
    IF new_key IS NULL THEN
        SELECT p.ctid, p.owner, p.inbox, p.kind, p.waiting, p.waiting_bytes
        INTO place, its_owner, its_inbox, its_kind, letters, bytes
        FROM perdure.process p WHERE p.id = target AND p.status = 'running' FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    IF new_type IN (1, 7) THEN
        letters := coalesce(letters, 0) + 1;
        bytes := coalesce(bytes, 0) + octet_length(new_payload);
    END IF;
    IF place IS NULL OR (most IS NOT NULL AND new_type IN (1, 7) AND (letters > most OR bytes > most_bytes)) OR EXISTS (
        SELECT FROM perdure.message m WHERE m.id = new_id AND m.process IS NOT DISTINCT FROM target OFFSET 0
    ) THEN
        SELECT s.now, s.verdicts, s.numbers, s.owners INTO now, verdicts, numbers, owners
        FROM perdure.send_within(
            ARRAY[new_id], ARRAY[target], ARRAY[new_type], ARRAY[new_name], ARRAY[new_payload], ARRAY[new_key],
            ARRAY[new_sender], most, most_bytes) AS s;
        RETURN;
    END IF;
    SELECT k.t INTO t FROM perdure.present k;
    INSERT INTO perdure.message (process, id, at, number, type, name, key, sender, payload)
    VALUES (target, new_id, t, its_inbox + 1, new_type, new_name, NULL, new_sender, new_payload);
    UPDATE perdure.process p SET
        inbox = its_inbox + 1,
        waiting = letters,
        waiting_bytes = bytes,
        due_at = CASE WHEN p.owner IS NOT NULL THEN p.due_at WHEN p.reminder THEN t ELSE least(p.due_at, t) END,
        reminder = false,
        changed_at = CASE WHEN p.owner IS NULL THEN t ELSE p.changed_at END
    WHERE p.ctid = place;
    now := perdure.micros(t);
    verdicts := ARRAY['delivered'];
    numbers := ARRAY[its_inbox + 1];
    owners := ARRAY[its_owner];
    IF its_owner IS NULL THEN
        PERFORM perdure.tell_due(ARRAY[its_kind], ARRAY[target]);
    ELSE
        PERFORM pg_notify('perdure_told', target::text);
    END IF;
END
$$;

-- Put one of the engine's own messages into an inbox, or any message of a worker of the release before: nothing is refused.
-- See perdure.send_alone_within.
CREATE OR REPLACE FUNCTION perdure.send_alone(
    new_id uuid, target uuid, new_type int, new_name text, new_payload bytea, new_key text, new_sender bytea,
    OUT now bigint, OUT verdicts text[], OUT numbers int[], OUT owners uuid[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT s.now, s.verdicts, s.numbers, s.owners INTO now, verdicts, numbers, owners
    FROM perdure.send_alone_within(new_id, target, new_type, new_name, new_payload, new_key, new_sender, NULL, NULL) AS s;
END
$$;

-- Send signals and calls for a login that may send nothing else. It may not raise the limits of an inbox.
CREATE OR REPLACE FUNCTION perdure.send_by_client(
    m_id uuid[], m_process uuid[], m_type int[], m_name text[], m_payload bytea[], m_key text[], m_sender bytea[],
    most int DEFAULT NULL, most_bytes bigint DEFAULT NULL,
    OUT now bigint, OUT verdicts text[], OUT numbers int[], OUT owners uuid[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF m_type <@ '{1,7}' IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'this login may only send signals and calls';
    END IF;
    SELECT * INTO now, verdicts, numbers, owners
    FROM perdure.send_within(m_id, m_process, m_type, m_name, m_payload, m_key, m_sender,
                             least(most, 10000), least(most_bytes, 67108864));
END
$$;
