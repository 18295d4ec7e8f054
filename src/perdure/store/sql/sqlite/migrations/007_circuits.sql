-- What is known of a dependency by the workers whose steps name its breaker (kernel/breaker.py).
CREATE TABLE circuit (
    name TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER,
    reason TEXT NOT NULL,
    forced INTEGER NOT NULL,
    opened INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    counted_from INTEGER NOT NULL,
    probes INTEGER NOT NULL,
    successes INTEGER NOT NULL,
    worker TEXT NOT NULL,
    changed_at INTEGER NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    origin TEXT NOT NULL,
    CONSTRAINT texts_are_clean CHECK (instr(name || state || reason || worker || who || why || origin, char(0)) = 0),
    CONSTRAINT counts_are_counts CHECK (opened >= 0 AND failures >= 0 AND probes >= 0 AND successes >= 0)
) STRICT, WITHOUT ROWID;
