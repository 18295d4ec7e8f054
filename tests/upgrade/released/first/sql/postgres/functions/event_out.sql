-- An event as the client reads it: whose it is, then the columns in the order of the record's fields.
CREATE OR REPLACE VIEW perdure.event_out AS
SELECT e.process, e.run, e.number, e.turn, e.type, perdure.micros(e.at) AS at, e.place, e.name, e.payload, e.digest,
       e.message, e.token, e.version
FROM perdure.event e;
