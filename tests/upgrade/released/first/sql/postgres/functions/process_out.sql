-- A process as the client reads it: the columns in the order of the record's fields, times in microseconds.
CREATE OR REPLACE VIEW perdure.process_out AS
SELECT p.id, p.kind, p.key, p.input, p.status::text AS status, p.run, p.version, p.token, p.owner,
       perdure.micros(p.due_at) AS due_at, p.reminder, p.inbox, p.seen, p.events, p.awaiting,
       p.deaths, p.alone_deaths, perdure.micros(p.deadline) AS deadline, p.priority::smallint AS priority,
       convert_to(p.attributes::text, 'UTF8') AS attributes, p.state, p.progress, p.result, p.error, p.parent, p.code,
       perdure.micros(p.created_at) AS created_at, perdure.micros(p.opened_at) AS opened_at,
       perdure.micros(p.changed_at) AS changed_at, p.share, coalesce(p.cost, 1) AS cost
FROM perdure.process p;
