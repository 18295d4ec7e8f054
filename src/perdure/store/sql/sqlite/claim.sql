-- Claims. Owned rows are not in the index of due rows: a lapsed lease is found through the owners, who are few.

-- name: look_for_work
-- All that a worker must know to claim or to wait, without the write lock.
-- heads: the earliest due time of each hosted pair and priority, plain and suspect, one seek each.
-- lapsed: rows whose lease is over, one seek per owner; hosted ones only, the longest lapsed first.
-- The last column names the kinds that have limits.
WITH RECURSIVE
common (now, most, alone, worker) AS (SELECT ?, ?, ?, ?),
given (n, kind, code) AS (SELECT * FROM (VALUES /* each */ (?, ?, ?) /* end */) WHERE column1 IS NOT -0.5),
priorities (priority) AS (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)),
heads (n, priority, plain, suspect) AS MATERIALIZED (
    SELECT given.n, priorities.priority,
        (SELECT min(due_at) FROM process INDEXED BY process_due
         WHERE kind = given.kind AND code = given.code AND priority = priorities.priority
         AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2),
        (SELECT min(due_at) FROM process INDEXED BY process_suspect
         WHERE kind = given.kind AND code = given.code AND priority = priorities.priority
         AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths >= 2)
    FROM given CROSS JOIN priorities
),
owners (owner) AS (
    SELECT min(owner) FROM process INDEXED BY process_owned WHERE owner IS NOT NULL
    UNION ALL
    SELECT (SELECT min(owner) FROM process INDEXED BY process_owned WHERE owner > owners.owner)
    FROM owners WHERE owners.owner IS NOT NULL
)
SELECT
    (SELECT at FROM clock),
    EXISTS (SELECT 1 FROM worker WHERE id = (SELECT worker FROM common) AND ended_at IS NULL),
    (SELECT json_group_array(json_array(n, priority, plain, suspect)) FROM heads
     WHERE plain IS NOT NULL OR suspect IS NOT NULL),
    (SELECT json_group_array(json_array(hex(id), bytes, alone_deaths)) FROM (
        SELECT process.id, alone_deaths, length(input) + coalesce(length(state), 0) + coalesce(length(result), 0) + coalesce(length(error), 0) AS bytes
        FROM owners
        CROSS JOIN process INDEXED BY process_owned ON process.owner = owners.owner AND process.due_at <= (SELECT now FROM common)
        WHERE owners.owner IS NOT NULL AND (process.deaths >= 2) = (SELECT alone FROM common)
        AND (process.kind, process.code) IN (SELECT given.kind, given.code FROM given)
        AND NOT EXISTS (SELECT 1 FROM queue WHERE name = ' recovery' AND (blocked_at IS NOT NULL OR rate IS NOT NULL))
        ORDER BY process.due_at, process.id LIMIT (SELECT most FROM common)
    )),
    (SELECT json_group_array(name) FROM queue
     WHERE name > ' kind ' AND name < ' kind!' AND (concurrency IS NOT NULL OR rate IS NOT NULL))

-- name: take_due
SELECT json_group_array(json_array(due_at, hex(id), bytes, 0)) FROM (
    SELECT due_at, id, length(input) + coalesce(length(state), 0) + coalesce(length(result), 0) + coalesce(length(error), 0) AS bytes
    FROM process INDEXED BY process_due
    WHERE kind = :kind AND code = :code AND priority = :priority AND due_at <= :now
    AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2
    ORDER BY due_at, id LIMIT :most
)

-- name: take_suspects
SELECT json_group_array(json_array(due_at, hex(id), bytes, alone_deaths)) FROM (
    SELECT due_at, id, alone_deaths,
        length(input) + coalesce(length(state), 0) + coalesce(length(result), 0) + coalesce(length(error), 0) AS bytes
    FROM process INDEXED BY process_suspect
    WHERE kind = :kind AND code = :code AND priority = :priority AND due_at <= :now
    AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths >= 2
    ORDER BY due_at, id LIMIT :most
)

-- name: read_processes
WITH given (n, id) AS (VALUES /* each */ (?, ?) /* end */)
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT p.head, p.body FROM given CROSS JOIN packed_process AS p ON p.id = given.id ORDER BY given.n
)

-- name: read_free
-- Those of the named processes that are free, and due if nobody asks for what rests, up to so many bytes, and one at least;
-- and how many there are.
WITH common (now, most, resting) AS (SELECT ?, ?, ?),
given (n, id) AS (VALUES /* each */ (?, ?) /* end */),
sized AS MATERIALIZED (
    SELECT id, row_number() OVER (ORDER BY n) AS n, sum(bytes) OVER (ORDER BY n) AS total FROM (
        SELECT given.n, process.id,
            length(input) + coalesce(length(state), 0) + coalesce(length(result), 0) + coalesce(length(error), 0) AS bytes
        FROM given CROSS JOIN process ON process.id = given.id
        WHERE process.owner IS NULL
        AND ((SELECT resting FROM common) OR (process.reminder = 0 AND (SELECT now FROM common) >= process.due_at))
        AND process.status = 1 AND process.deaths < 2
    )
)
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB),
    (SELECT count(*) FROM sized)
FROM (
    SELECT p.head, p.body FROM sized CROSS JOIN packed_process AS p ON p.id = sized.id
    WHERE sized.n = 1 OR sized.total <= (SELECT most FROM common) ORDER BY sized.n
)

-- name: own_processes
-- One that waits for a place among the processes of its kind stays free, which the count of changed rows tells. A
-- suspect waits for its quarantine only.
UPDATE process SET
    owner = ?, due_at = ?, opened_at = coalesce(opened_at, ?), changed_at = ?,
    token = token % 9223372036854775807 + 1, reminder = 0
WHERE (
    share = ' place' OR owner IS NOT NULL OR deaths >= 2 OR ' kind ' || kind NOT IN (
        SELECT name FROM queue
        WHERE name > ' kind ' AND name < ' kind!' AND (concurrency IS NOT NULL OR rate IS NOT NULL)
    )
) AND id IN (VALUES /* each */ (?) /* end */)

-- name: read_histories
WITH given (process, run, first) AS (VALUES /* each */ (?, ?, ?) /* end */)
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT e.head, e.body FROM given
    CROSS JOIN packed_event AS e ON e.process = given.process AND e.run = given.run AND e.number >= given.first
    ORDER BY e.process, e.number
)

-- name: read_unheard
-- Unheard messages, up to so many bytes for all rows together; one message at least, and every order to end (6).
WITH common (most) AS (SELECT ?),
given (process, seen) AS (VALUES /* each */ (?, ?) /* end */),
sized AS (
    SELECT m.process, m.number, m.bytes, m.type, sum(m.bytes) OVER (ORDER BY m.process, m.number) AS total FROM (
        SELECT message.process, message.number, message.type, length(message.payload) AS bytes
        FROM given CROSS JOIN message ON message.process = given.process AND message.number > given.seen
    ) AS m
)
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT m.head, m.body FROM sized
    CROSS JOIN packed_message AS m ON m.process = sized.process AND m.number = sized.number
    WHERE sized.total - sized.bytes < (SELECT most FROM common) OR sized.type = 6 ORDER BY m.process, m.number
)

-- name: read_waiting
-- Letters of one name that a process has heard and not received: those that are marked, and those above the row's number.
WITH sized AS (
    SELECT number, bytes, sum(bytes) OVER (ORDER BY number) AS total FROM (
        SELECT number, length(payload) AS bytes FROM (
            SELECT number, payload FROM message INDEXED BY message_waits
            WHERE process = :process AND name = :name AND waits = 1 AND number > :after AND number <= :upto
            AND consumed_by IS NULL
            UNION ALL
            SELECT number, payload FROM message
            WHERE process = :process AND number > max(:after, :seen) AND number <= :upto AND name = :name
            AND (type = 1 OR type = 7) AND consumed_by IS NULL AND waits IS NULL
        ) ORDER BY number LIMIT :most
    )
)
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT m.head, m.body FROM sized CROSS JOIN packed_message AS m ON m.process = :process AND m.number = sized.number
    WHERE sized.total - sized.bytes < :bytes ORDER BY m.number
)

-- name: find_waiting
-- Which of these processes have letters that they have heard and not received.
WITH given (process) AS (VALUES /* each */ (?) /* end */)
SELECT json_group_array(hex(given.process)) FROM given
WHERE EXISTS (SELECT 1 FROM message INDEXED BY message_waits WHERE process = given.process AND waits = 1)

-- name: find_lacking
-- In which of these inboxes fewer letters wait than the row counts, with both numbers; where very many wait nobody counts.
WITH given (process) AS (VALUES /* each */ (?) /* end */)
SELECT json_group_array(json_array(hex(id), waiting, there)) FROM (
    SELECT p.id, p.waiting, (
        SELECT count(*) FROM message INDEXED BY message_waits WHERE process = p.id AND waits = 1
    ) + (
        SELECT count(*) FROM message
        WHERE process = p.id AND number > p.seen AND (type = 1 OR type = 7) AND consumed_by IS NULL AND waits IS NULL
    ) AS there
    FROM given CROSS JOIN process AS p ON p.id = given.process WHERE p.waiting BETWEEN 1 AND 1000
) WHERE there < waiting

-- name: weigh_messages
-- The sizes of the messages that events refer to: as many are read at once as one answer holds well.
WITH given (process, number) AS (VALUES /* each */ (?, ?) /* end */)
SELECT json_group_array(json_array(hex(process), number, bytes)) FROM (
    SELECT m.process, m.number, length(m.payload) AS bytes
    FROM given CROSS JOIN message AS m ON m.process = given.process AND m.number = given.number
)

-- name: read_messages_by_number
WITH given (process, number) AS (VALUES /* each */ (?, ?) /* end */)
SELECT '[' || coalesce(group_concat(head), '') || ']', CAST(group_concat(body, '') AS BLOB) FROM (
    SELECT m.head, m.body FROM given
    CROSS JOIN packed_message AS m ON m.process = given.process AND m.number = given.number
    ORDER BY m.process, m.number
)
