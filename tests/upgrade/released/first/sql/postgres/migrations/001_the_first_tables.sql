-- The tables of Perdure, their indexes, and the laws that SQL can say, each as a constraint with the law's name.

CREATE TYPE perdure.status AS ENUM ('running', 'held', 'broken', 'completed', 'failed', 'cancelled');

-- A domain, since its check is read once a session; a check of the table is read anew by every statement that writes.
CREATE DOMAIN perdure.priority AS smallint CONSTRAINT priority_is_0_to_9 CHECK (VALUE BETWEEN 0 AND 9);

-- The store's clock: its high-water mark, so that time does not run backward after a fail-over, and a test's time.
CREATE TABLE perdure.clock (
    one        boolean PRIMARY KEY DEFAULT true CONSTRAINT one_clock CHECK (one),
    high_water timestamptz NOT NULL DEFAULT '-infinity',
    fake       timestamptz
) WITH (fillfactor = 10);
INSERT INTO perdure.clock DEFAULT VALUES;

-- Columns stand by alignment (16, 8, 4, 2, 1 bytes, then the variable ones), so that a row carries no padding.
CREATE TABLE perdure.process (
    id           uuid PRIMARY KEY,
    created_at   timestamptz NOT NULL,
    opened_at    timestamptz,
    changed_at   timestamptz NOT NULL,
    due_at       timestamptz,
    deadline     timestamptz,
    status       perdure.status NOT NULL,
    run          int NOT NULL,
    version      int NOT NULL,
    token        int NOT NULL,
    inbox        int NOT NULL,
    seen         int NOT NULL,
    events       int NOT NULL,
    cost         int,
    deaths       smallint NOT NULL,
    alone_deaths smallint NOT NULL,
    priority     perdure.priority NOT NULL,
    reminder     boolean NOT NULL,
    owner        uuid,
    parent       uuid,
    kind         text COLLATE "C" NOT NULL,
    key          text COLLATE "C",
    code         text COLLATE "C" NOT NULL,
    awaiting     text COLLATE "C",
    input        bytea NOT NULL,
    state        bytea,
    progress     bytea,
    result       bytea,
    error        bytea,
    attributes   jsonb,
    share        text COLLATE "C",
    CONSTRAINT unfinished_is_due CHECK (
        (due_at IS NULL) = (status >= 'completed') AND (status = 'running' OR reminder = (due_at IS NOT NULL))
    ),
    CONSTRAINT one_owner CHECK (owner IS NULL OR (status = 'running' AND NOT reminder)),
    CONSTRAINT nothing_unheard CHECK (
        inbox <= seen OR status <> 'running' OR owner IS NOT NULL OR (due_at <= changed_at AND NOT reminder)
    )
);

-- What a claim may take, one seek per (kind, code, priority). Suspects (deaths >= 2) stand apart.
CREATE INDEX process_due ON perdure.process (kind, code, priority, due_at, id)
    WHERE status = 'running' AND owner IS NULL AND NOT reminder AND deaths < 2;
CREATE INDEX process_suspect ON perdure.process (kind, code, priority, due_at, id)
    WHERE status = 'running' AND owner IS NULL AND NOT reminder AND deaths >= 2;
-- Who owns what, and which leases have lapsed (a seek per owner). Leases given together are equal, so it stays small.
CREATE INDEX process_lease ON perdure.process (owner, due_at) WHERE owner IS NOT NULL;
-- Tasks only: what runs of a queue, to be held against its limits, and what is due of each share, so that shares can take
-- turns. No other process stands in them.
CREATE INDEX process_running ON perdure.process (kind, share) INCLUDE (cost) WHERE kind < 'A' AND kind >= '@' AND owner IS NOT NULL;
CREATE INDEX process_share ON perdure.process (kind, code, priority, share, due_at, id)
    WHERE kind < 'A' AND kind >= '@' AND status = 'running' AND owner IS NULL AND NOT reminder;
CREATE INDEX process_reminder ON perdure.process (due_at) WHERE reminder;
-- Of which kinds and versions rows are that sleep without a timer: equal entries, which take next to no room.
CREATE INDEX process_asleep ON perdure.process (kind, code) WHERE reminder;
-- What people look for when something is wrong; ordinary rows never stand in it.
CREATE INDEX process_resting ON perdure.process (id) WHERE status IN ('held', 'broken');
CREATE INDEX process_deadline ON perdure.process (deadline) WHERE deadline IS NOT NULL AND due_at IS NOT NULL;
CREATE INDEX process_finished ON perdure.process (changed_at) WHERE due_at IS NULL;
CREATE INDEX process_attributes ON perdure.process USING gin (attributes jsonb_path_ops)
    WITH (fastupdate = off) WHERE attributes IS NOT NULL;
CREATE UNIQUE INDEX process_key ON perdure.process (kind, key) WHERE key IS NOT NULL;

-- Queues that somebody has limited or blocked; a claim of their tasks locks the row, so that no two count at once.
CREATE TABLE perdure.queue (
    name              text COLLATE "C" PRIMARY KEY,
    version           int NOT NULL,
    concurrency       int,
    rate              int,
    per               bigint NOT NULL,
    share_concurrency int,
    blocked_at        timestamptz,
    blocked_by        text NOT NULL,
    blocked_why       text NOT NULL,
    changed_at        timestamptz NOT NULL,
    who               text NOT NULL,
    why               text NOT NULL,
    origin            text NOT NULL,
    next_at           timestamptz NOT NULL,
    turn              text COLLATE "C" NOT NULL,
    CONSTRAINT limits_are_positive CHECK (
        (concurrency IS NULL OR concurrency >= 1) AND (rate IS NULL OR rate >= 1) AND per >= 1
        AND (share_concurrency IS NULL OR share_concurrency >= 1)
    )
) WITH (fillfactor = 10);

CREATE TABLE perdure.event (
    process uuid NOT NULL,
    at      timestamptz NOT NULL,
    run     int NOT NULL,
    number  int NOT NULL,
    turn    int NOT NULL,
    token   int NOT NULL,
    version int NOT NULL,
    message int,
    type    smallint NOT NULL,
    place   text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    digest  bytea,
    payload bytea,
    CONSTRAINT result_once PRIMARY KEY (process, run, number),
    CONSTRAINT history_is_gapless CHECK (number >= 1)
);
-- Published values and answers to calls, for those who read one name. It does not begin with the process, as the primary
-- key does: no plan can take one for the other and read a whole history.
CREATE INDEX event_published ON perdure.event (name, process, run, number) WHERE type IN (36, 38, 39);

CREATE TABLE perdure.message (
    process      uuid NOT NULL,
    id           uuid NOT NULL,
    at           timestamptz NOT NULL,
    number       int NOT NULL,
    consumed_run int,
    consumed_by  int,
    type         smallint NOT NULL,
    name         text COLLATE "C" NOT NULL,
    key          text COLLATE "C",
    sender       bytea,
    payload      bytea NOT NULL,
    PRIMARY KEY (process, number),
    CONSTRAINT numbers_begin_at_1 CHECK (number >= 1),
    CONSTRAINT result_once CHECK ((consumed_run IS NULL) = (consumed_by IS NULL))
);
-- A message is known again by its id, or by its sender's key; whoever asks holds the lock of the process. Neither index
-- begins with the process, as the primary key does: no plan can take one for the other and read a whole inbox.
CREATE INDEX message_id ON perdure.message (id);
CREATE UNIQUE INDEX message_key ON perdure.message (key, process) WHERE key IS NOT NULL;

CREATE TABLE perdure.worker (
    id         uuid PRIMARY KEY,
    started_at timestamptz NOT NULL,
    due_at     timestamptz,
    ended_at   timestamptz,
    beats      bigint NOT NULL,
    locked     boolean NOT NULL,
    died       boolean NOT NULL,
    name       text COLLATE "C" NOT NULL,
    hosts      bytea NOT NULL,
    CONSTRAINT unfinished_is_due CHECK ((due_at IS NULL) = (ended_at IS NOT NULL))
) WITH (fillfactor = 50);

-- Keys outlive processes: what pruning leaves of a process that had a key, until the key's own retention ends.
CREATE TABLE perdure.key_kept (
    kind    text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    process uuid NOT NULL,
    due_at  timestamptz NOT NULL,
    digest  bytea NOT NULL,
    PRIMARY KEY (kind, key)
);
CREATE INDEX key_kept_due ON perdure.key_kept (due_at);
