-- What checks have found (kernel/finding.py), and how far the checks in the background have come (kernel/audit.py).
CREATE TABLE finding (
    name TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    law TEXT NOT NULL,
    process TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    since INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    gone_at INTEGER,
    mended_by TEXT NOT NULL,
    mended TEXT NOT NULL,
    CONSTRAINT texts_are_clean CHECK (instr(name || law || process || kind || text || mended_by || mended, char(0)) = 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    name TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    worker TEXT NOT NULL,
    place TEXT NOT NULL,
    begun_at INTEGER NOT NULL,
    checked INTEGER NOT NULL,
    found INTEGER NOT NULL,
    rounds INTEGER NOT NULL,
    ended_at INTEGER,
    line TEXT NOT NULL,
    CONSTRAINT texts_are_clean CHECK (instr(name || worker || place || line, char(0)) = 0),
    CONSTRAINT counts_are_counts CHECK (checked >= 0 AND found >= 0 AND rounds >= 0)
) STRICT, WITHOUT ROWID;
