-- What workers note for each other and for people: the passes of their sweeps, for one (kernel/note.py).
CREATE TABLE perdure.note (
    name       text COLLATE "C" PRIMARY KEY,
    version    bigint NOT NULL,
    changed_at timestamptz NOT NULL,
    content    text NOT NULL
) WITH (fillfactor = 10);

CREATE TYPE perdure.note_in AS (name text, version bigint, changed_at bigint, content text);
