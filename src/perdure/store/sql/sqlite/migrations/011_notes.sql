-- What workers note for each other and for people: the passes of their sweeps, for one (kernel/note.py).
CREATE TABLE note (
    name TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    content TEXT NOT NULL,
    CONSTRAINT texts_are_clean CHECK (instr(name || content, char(0)) = 0)
) STRICT, WITHOUT ROWID;
