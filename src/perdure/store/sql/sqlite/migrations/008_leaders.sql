-- Which program leads in a matter that one program at a time may deal with (kernel/leader.py).
CREATE TABLE leader (
    name TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    term INTEGER NOT NULL,
    candidate TEXT NOT NULL,
    program TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    released INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    origin TEXT NOT NULL,
    CONSTRAINT texts_are_clean CHECK (instr(name || candidate || program || who || why || origin, char(0)) = 0),
    CONSTRAINT terms_are_counted CHECK (term >= 1)
) STRICT, WITHOUT ROWID;
