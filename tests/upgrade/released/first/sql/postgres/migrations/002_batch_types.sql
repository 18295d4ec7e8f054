-- What travels in a batch: one composite value for a record, its columns in the order in which the client sends them.
-- One array of records costs client and server less than half of what one array for each column does. Columns that
-- are seldom used stand in a "rare" record; when a whole batch has only their defaults, that array is null.
-- Times and durations are microseconds. The number of an event's or message's record counts from 1 in the batch.
CREATE TYPE perdure.start_in AS (
    id uuid, kind text, key text, input bytea, version int, token int, owner uuid, lease bigint, due_at bigint,
    events int, awaiting text, code text, created_at bigint, opened_at bigint
);
CREATE TYPE perdure.start_rare AS (
    status perdure.status, run int, reminder boolean, seen int, deaths int, alone_deaths int, deadline bigint,
    priority int, attributes text, state bytea, progress bytea, result bytea, error bytea, parent uuid, share text, cost int
);
CREATE TYPE perdure.commit_in AS (
    id uuid, token int, version int, forced int, status perdure.status, run int, owner uuid, lease bigint,
    due_at bigint, seen int, events int, awaiting text, result bytea, code text, opened_at bigint,
    not_before bigint
);
CREATE TYPE perdure.commit_rare AS (
    reminder boolean, deaths int, alone_deaths int, deadline bigint, priority int, attributes text, state bytea,
    progress bytea, error bytea, message_offered int
);
CREATE TYPE perdure.queue_in AS (
    name text, version int, concurrency int, rate int, per bigint, share_concurrency int, blocked_at bigint,
    blocked_by text, blocked_why text, changed_at bigint, who text, why text, origin text, next_at bigint, turn text
);
CREATE TYPE perdure.event_in AS (
    record int, number int, turn int, type int, at bigint, place text, name text, payload bytea, digest bytea, message int
);
CREATE TYPE perdure.consumed_in AS (record int, number int, event int);
CREATE TYPE perdure.letter_in AS (
    record int, id uuid, process uuid, type int, name text, payload bytea, key text, sender bytea
);
