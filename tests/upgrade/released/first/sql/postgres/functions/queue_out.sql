-- A queue as the client reads it: the columns in the order of the record's fields, times in microseconds.
CREATE OR REPLACE VIEW perdure.queue_out AS
SELECT q.name, q.version, q.concurrency, q.rate, q.per, q.share_concurrency, perdure.micros(q.blocked_at) AS blocked_at,
       q.blocked_by, q.blocked_why, perdure.micros(q.changed_at) AS changed_at, q.who, q.why, q.origin,
       perdure.micros(q.next_at) AS next_at, q.turn
FROM perdure.queue q;
