-- Event streams (kernel/stream.py), and what was written since the oldest of their positions. All of it stays empty until there
-- is a stream: the triggers that write here are made with the first one.
CREATE TABLE perdure.event_stream (
    name       text COLLATE "C" PRIMARY KEY,
    version    bigint NOT NULL,
    kinds      text NOT NULL,
    lifecycle  boolean NOT NULL,
    sink       text NOT NULL,
    position   bigint NOT NULL,
    owner      text NOT NULL,
    until      timestamptz NOT NULL,
    failures   int NOT NULL,
    error      text NOT NULL,
    changed_at timestamptz NOT NULL,
    who        text NOT NULL,
    why        text NOT NULL,
    origin     text NOT NULL,
    CONSTRAINT counts_are_counts CHECK (failures >= 0)
) WITH (fillfactor = 10);

CREATE TYPE perdure.event_stream_in AS (
    name text, version bigint, kinds text, lifecycle boolean, sink text, position bigint, owner text, until bigint,
    failures int, error text, changed_at bigint, who text, why text, origin text, removed boolean
);

-- Written by the triggers, in the transaction of the commit. Numbers are given under the lock of the process: of one process
-- they stand in the order of its commits. Those of several processes become visible in any order, so no reader has a
-- position here.
CREATE TABLE perdure.stream_inlet (
    number  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    process uuid NOT NULL,
    at      timestamptz NOT NULL,
    run     int NOT NULL,
    first   int NOT NULL,
    last    int NOT NULL,
    type    smallint NOT NULL
);

-- The same in the one order in which it is read: moved here by one reader at a time, so that no number becomes visible
-- before a lower one. A row stands for events ``first`` to ``last``, or for
-- changes of a life (type 101 and higher); its number is the last one's.
CREATE TABLE perdure.stream_record (
    number  bigint PRIMARY KEY,
    process uuid NOT NULL,
    at      timestamptz NOT NULL,
    run     int NOT NULL,
    first   int NOT NULL,
    last    int NOT NULL,
    type    smallint NOT NULL
);

CREATE TABLE perdure.stream_head (
    one    boolean PRIMARY KEY DEFAULT true CONSTRAINT one_head CHECK (one),
    number bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO perdure.stream_head DEFAULT VALUES;

-- What was removed before every stream had it. ``until`` is the position behind which no stream needs it; null while that
-- is not known.
CREATE TABLE perdure.stream_kept (
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
    until   bigint,
    PRIMARY KEY (process, run, number)
);
CREATE INDEX stream_kept_until ON perdure.stream_kept (until);

CREATE TABLE perdure.stream_gone (
    process uuid PRIMARY KEY,
    kind    text COLLATE "C" NOT NULL,
    key     text COLLATE "C",
    code    text COLLATE "C" NOT NULL,
    input   bytea,
    until   bigint
);
CREATE INDEX stream_gone_until ON perdure.stream_gone (until);
