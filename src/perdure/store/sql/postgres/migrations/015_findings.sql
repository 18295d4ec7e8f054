-- What checks have found (kernel/finding.py), and how far the checks in the background have come (kernel/audit.py).
CREATE TABLE perdure.finding (
    name      text COLLATE "C" PRIMARY KEY,
    version   bigint NOT NULL,
    law       text NOT NULL,
    process   text NOT NULL,
    kind      text NOT NULL,
    text      text NOT NULL,
    since     timestamptz NOT NULL,
    seen_at   timestamptz NOT NULL,
    gone_at   timestamptz,
    mended_by text NOT NULL,
    mended    text NOT NULL
);

CREATE TYPE perdure.kept_finding_in AS (
    name text, version bigint, law text, process text, kind text, text text, since bigint, seen_at bigint, gone_at bigint,
    mended_by text, mended text, removed boolean
);

CREATE TABLE perdure.audit (
    name     text COLLATE "C" PRIMARY KEY,
    version  bigint NOT NULL,
    due_at   timestamptz NOT NULL,
    worker   text NOT NULL,
    place    text NOT NULL,
    begun_at timestamptz NOT NULL,
    checked  bigint NOT NULL,
    found    bigint NOT NULL,
    rounds   bigint NOT NULL,
    ended_at timestamptz,
    line     text NOT NULL,
    CONSTRAINT counts_are_counts CHECK (checked >= 0 AND found >= 0 AND rounds >= 0)
) WITH (fillfactor = 10);

CREATE TYPE perdure.audit_in AS (
    name text, version bigint, due_at bigint, worker text, place text, begun_at bigint, checked bigint, found bigint,
    rounds bigint, ended_at bigint, line text, line_now text
);
