-- Which program leads in a matter that one program at a time may deal with (kernel/leader.py).
CREATE TABLE perdure.leader (
    name       text COLLATE "C" PRIMARY KEY,
    version    bigint NOT NULL,
    term       bigint NOT NULL,
    candidate  text NOT NULL,
    program    text NOT NULL,
    since      timestamptz NOT NULL,
    until      timestamptz NOT NULL,
    released   boolean NOT NULL,
    changed_at timestamptz NOT NULL,
    who        text NOT NULL,
    why        text NOT NULL,
    origin     text NOT NULL,
    CONSTRAINT terms_are_counted CHECK (term >= 1)
) WITH (fillfactor = 10);

CREATE TYPE perdure.leader_in AS (
    name text, version bigint, term bigint, candidate text, program text, since bigint, until bigint, released boolean,
    changed_at bigint, who text, why text, origin text
);
