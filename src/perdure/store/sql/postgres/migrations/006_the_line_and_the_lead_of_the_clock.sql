-- line: a name drawn anew when somebody finds that the database was set back (a backup put in its place); lead: how far
-- the store's time is ahead of the server's clock, since that was put back (kernel/clock.py).
ALTER TABLE perdure.clock
    ADD COLUMN line       uuid,
    ADD COLUMN line_at    timestamptz,
    ADD COLUMN lead       interval NOT NULL DEFAULT '0',
    ADD COLUMN lead_since timestamptz,
    ADD COLUMN slewed_at  timestamptz,
    ADD COLUMN mending    boolean NOT NULL DEFAULT false,
    ADD COLUMN version    int NOT NULL DEFAULT 0,
    ADD COLUMN changed_at timestamptz,
    ADD COLUMN who        text NOT NULL DEFAULT '',
    ADD COLUMN why        text NOT NULL DEFAULT '',
    ADD COLUMN origin     text NOT NULL DEFAULT '';
UPDATE perdure.clock SET line = gen_random_uuid();
CREATE TYPE perdure.clock_in AS (
    name text, version int, at bigint, machine_at bigint, lead bigint, lead_since bigint, mending boolean,
    changed_at bigint, who text, why text, origin text
);
