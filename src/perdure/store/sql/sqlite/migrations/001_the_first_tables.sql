-- The first tables. Ids are 16 bytes, times are integer microseconds since 1970, payloads are opaque bytes.
-- Statuses are numbers, for the sake of bytes: 1 running, 2 held, 3 broken, 4 completed, 5 failed, 6 cancelled.
-- opened_at is 0 where it is created_at, which saves 8 bytes a row. People read the views process_shown and event_shown.

CREATE TABLE process (
    id BLOB NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    key TEXT,
    input BLOB NOT NULL,
    status INTEGER NOT NULL,
    run INTEGER NOT NULL,
    version INTEGER NOT NULL,
    token INTEGER NOT NULL,
    owner BLOB,
    due_at INTEGER,
    reminder INTEGER NOT NULL,
    inbox INTEGER NOT NULL,
    seen INTEGER NOT NULL,
    events INTEGER NOT NULL,
    awaiting TEXT,
    deaths INTEGER NOT NULL,
    alone_deaths INTEGER NOT NULL,
    deadline INTEGER,
    priority INTEGER NOT NULL,
    attributes BLOB,
    state BLOB,
    progress BLOB,
    result BLOB,
    error BLOB,
    parent BLOB,
    code TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    opened_at INTEGER,
    changed_at INTEGER NOT NULL,
    share TEXT,
    cost INTEGER,
    CONSTRAINT ids_are_16_bytes CHECK (length(id) = 16 AND (parent IS NULL OR length(parent) = 16)),
    CONSTRAINT names_are_clean CHECK (instr(kind, char(0)) = 0 AND (key IS NULL OR instr(key, char(0)) = 0)),
    CONSTRAINT texts_are_clean CHECK (
        instr(code, char(0)) = 0 AND (awaiting IS NULL OR instr(awaiting, char(0)) = 0)
        AND (share IS NULL OR instr(share, char(0)) = 0)
    ),
    CONSTRAINT status_is_known CHECK (status BETWEEN 1 AND 6),
    CONSTRAINT priority_is_0_to_9 CHECK (priority BETWEEN 0 AND 9),
    CONSTRAINT unfinished_is_due CHECK ((due_at IS NULL) = (status >= 4)),
    CONSTRAINT one_owner CHECK (owner IS NULL OR status = 1 AND reminder = 0 AND length(owner) = 16),
    CONSTRAINT nothing_unheard CHECK (status <> 1 OR owner IS NOT NULL OR inbox <= seen OR reminder = 0),
    CONSTRAINT rest_has_a_reminder CHECK (status NOT IN (2, 3) OR reminder = 1)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX process_key ON process (kind, key) WHERE key IS NOT NULL;
-- What a claim looks for: one seek per kind, code and priority. Owned rows are not in it; a lapsed lease is found by owner.
CREATE INDEX process_due ON process (kind, code, priority, due_at)
    WHERE status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2;
CREATE INDEX process_suspect ON process (kind, code, priority, due_at)
    WHERE status = 1 AND owner IS NULL AND reminder = 0 AND deaths >= 2;
CREATE INDEX process_owned ON process (owner, due_at) WHERE owner IS NOT NULL;
-- Tasks only: what runs of a queue, to be held against its limits, and what is due of each share, so that shares can take
-- turns. No other process stands in them.
CREATE INDEX process_running ON process (kind, share, cost) WHERE kind < 'A' AND kind >= '@' AND owner IS NOT NULL;
CREATE INDEX process_share ON process (kind, code, priority, share, due_at)
    WHERE kind < 'A' AND kind >= '@' AND status = 1 AND owner IS NULL AND reminder = 0 AND deaths < 2;
CREATE INDEX process_reminder ON process (due_at) WHERE reminder = 1;
CREATE INDEX process_asleep ON process (kind, code) WHERE reminder = 1;
CREATE INDEX process_deadline ON process (deadline) WHERE deadline IS NOT NULL AND status <= 3;
-- For pruning, and for people who look for what is held, broken, failed or cancelled.
CREATE INDEX process_rested ON process (status, changed_at) WHERE status >= 2;

-- Queues that somebody has limited or blocked.
CREATE TABLE queue (
    name TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    concurrency INTEGER,
    rate INTEGER,
    per INTEGER NOT NULL,
    share_concurrency INTEGER,
    blocked_at INTEGER,
    blocked_by TEXT NOT NULL,
    blocked_why TEXT NOT NULL,
    changed_at INTEGER NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    origin TEXT NOT NULL,
    next_at INTEGER NOT NULL,
    turn TEXT NOT NULL,
    CONSTRAINT texts_are_clean CHECK (instr(name || blocked_by || blocked_why || who || why || origin, char(0)) = 0),
    CONSTRAINT limits_are_positive CHECK (
        (concurrency IS NULL OR concurrency >= 1) AND (rate IS NULL OR rate >= 1) AND per >= 1
        AND (share_concurrency IS NULL OR share_concurrency >= 1)
    )
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    process BLOB NOT NULL REFERENCES process (id),
    run INTEGER NOT NULL,
    number INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    type INTEGER NOT NULL,
    at INTEGER NOT NULL,
    place TEXT NOT NULL,
    name TEXT NOT NULL,
    payload BLOB,
    digest BLOB,
    message INTEGER,
    token INTEGER NOT NULL,
    version INTEGER NOT NULL,
    CONSTRAINT result_once PRIMARY KEY (process, run, number),
    CONSTRAINT history_is_gapless CHECK (number >= 1),
    CONSTRAINT texts_are_clean CHECK (instr(place, char(0)) = 0 AND instr(name, char(0)) = 0)
) STRICT, WITHOUT ROWID;

-- Published values and answers to calls, for those who read one name.
-- Without IN: SQLite would build a tree of its list for every event that is written.
CREATE INDEX event_published ON event (name, process, run, number) WHERE type >= 36 AND type <= 39 AND type <> 37;

CREATE TABLE message (
    process BLOB NOT NULL REFERENCES process (id),
    number INTEGER NOT NULL,
    id BLOB NOT NULL,
    type INTEGER NOT NULL,
    name TEXT NOT NULL,
    payload BLOB NOT NULL,
    key TEXT,
    sender BLOB,
    at INTEGER NOT NULL,
    consumed_run INTEGER,
    consumed_by INTEGER,
    PRIMARY KEY (process, number),
    CONSTRAINT ids_are_16_bytes CHECK (length(id) = 16),
    CONSTRAINT numbers_begin_at_1 CHECK (number >= 1),
    CONSTRAINT texts_are_clean CHECK (instr(name, char(0)) = 0 AND (key IS NULL OR instr(key, char(0)) = 0)),
    CONSTRAINT result_once CHECK ((consumed_run IS NULL) = (consumed_by IS NULL))
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX message_id ON message (process, id);
CREATE UNIQUE INDEX message_key ON message (process, key) WHERE key IS NOT NULL;

CREATE TABLE worker (
    id BLOB NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    hosts BLOB NOT NULL,
    started_at INTEGER NOT NULL,
    beats INTEGER NOT NULL,
    due_at INTEGER,
    locked INTEGER NOT NULL,
    ended_at INTEGER,
    died INTEGER NOT NULL,
    CONSTRAINT ids_are_16_bytes CHECK (length(id) = 16),
    CONSTRAINT texts_are_clean CHECK (instr(name, char(0)) = 0),
    CONSTRAINT unfinished_is_due CHECK ((due_at IS NULL) = (ended_at IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- What stays of a pruned process that had a key, until due_at (rule 24). digest is blake2b of the input, 16 bytes.
CREATE TABLE key_kept (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    process BLOB NOT NULL,
    digest BLOB NOT NULL,
    due_at INTEGER NOT NULL,
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX key_kept_due ON key_kept (due_at);

-- One row: the high-water mark of the store's clock, and how often a commit had a hint for other workers.
CREATE TABLE clock (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    at INTEGER NOT NULL,
    due_hints INTEGER NOT NULL,
    done_hints INTEGER NOT NULL
) STRICT;

INSERT INTO clock (one, at, due_hints, done_hints) VALUES (1, 0, 0, 0);

CREATE VIEW process_shown AS
SELECT lower(hex(id)) AS id, kind, key,
    CASE status
        WHEN 1 THEN 'running' WHEN 2 THEN 'held' WHEN 3 THEN 'broken'
        WHEN 4 THEN 'completed' WHEN 5 THEN 'failed' ELSE 'cancelled'
    END AS status,
    run, version, token, lower(hex(owner)) AS owner, datetime(due_at / 1000000, 'unixepoch') AS due_at, reminder,
    inbox, seen, events, awaiting, deaths, priority, code, CAST(input AS TEXT) AS input, CAST(state AS TEXT) AS state,
    CAST(progress AS TEXT) AS progress, CAST(result AS TEXT) AS result, CAST(error AS TEXT) AS error,
    CAST(attributes AS TEXT) AS attributes, datetime(deadline / 1000000, 'unixepoch') AS deadline,
    datetime(created_at / 1000000, 'unixepoch') AS created_at, datetime(changed_at / 1000000, 'unixepoch') AS changed_at
FROM process;

CREATE VIEW event_shown AS
SELECT lower(hex(process)) AS process, run, number, turn, type, datetime(at / 1000000, 'unixepoch') AS at, place, name,
    CAST(payload AS TEXT) AS payload, message, token, version
FROM event;
