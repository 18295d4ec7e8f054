-- A message as the client reads it: the columns in the order of the record's fields.
CREATE OR REPLACE VIEW perdure.message_out AS
SELECT m.id, m.process, m.type, m.name, m.payload, m.key, m.sender, m.number, perdure.micros(m.at) AS at,
       m.consumed_run, m.consumed_by
FROM perdure.message m;
