-- What is known of a dependency by the workers whose steps name its breaker (kernel/breaker.py).
CREATE TABLE perdure.circuit (
    name         text COLLATE "C" PRIMARY KEY,
    version      bigint NOT NULL,
    state        text NOT NULL,
    since        timestamptz NOT NULL,
    until        timestamptz,
    reason       text NOT NULL,
    forced       boolean NOT NULL,
    opened       int NOT NULL,
    failures     int NOT NULL,
    counted_from timestamptz NOT NULL,
    probes       int NOT NULL,
    successes    int NOT NULL,
    worker       text NOT NULL,
    changed_at   timestamptz NOT NULL,
    who          text NOT NULL,
    why          text NOT NULL,
    origin       text NOT NULL,
    CONSTRAINT counts_are_counts CHECK (opened >= 0 AND failures >= 0 AND probes >= 0 AND successes >= 0)
) WITH (fillfactor = 10);

CREATE TYPE perdure.circuit_in AS (
    name text, version bigint, state text, since bigint, until bigint, reason text, forced boolean, opened int,
    failures int, counted_from bigint, probes int, successes int, worker text, changed_at bigint, who text,
    why text, origin text
);
