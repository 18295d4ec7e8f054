-- Event streams (kernel/stream.py), and what was written since the oldest of their positions. All of it stays empty until there
-- is a stream: the triggers that write here are made with the first one.
CREATE TABLE event_stream (
    name TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    kinds TEXT NOT NULL,
    lifecycle INTEGER NOT NULL,
    sink TEXT NOT NULL,
    position INTEGER NOT NULL,
    owner TEXT NOT NULL,
    until INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    error TEXT NOT NULL,
    changed_at INTEGER NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    origin TEXT NOT NULL,
    CONSTRAINT texts_are_clean CHECK (instr(name || kinds || sink || owner || error || who || why || origin, char(0)) = 0),
    CONSTRAINT counts_are_counts CHECK (failures >= 0)
) STRICT, WITHOUT ROWID;

-- What has happened, in the order of the transactions: one of them writes at a time. Its last row always stays, so that no
-- number is given twice.
CREATE TABLE stream_record (
    number INTEGER PRIMARY KEY,
    process BLOB NOT NULL,
    at INTEGER NOT NULL,
    run INTEGER NOT NULL,
    event INTEGER NOT NULL,
    type INTEGER NOT NULL
) STRICT;

-- What was removed before every stream had it. ``until`` is the position behind which no stream needs it.
CREATE TABLE stream_kept (
    process BLOB NOT NULL,
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
    until INTEGER NOT NULL,
    PRIMARY KEY (process, run, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX stream_kept_until ON stream_kept (until);

CREATE TABLE stream_gone (
    process BLOB NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    key TEXT,
    code TEXT NOT NULL,
    input BLOB,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX stream_gone_until ON stream_gone (until);
