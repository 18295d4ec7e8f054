-- Functions alone, which are installed after the last migration: perdure.claimed_events_from reads from an event on, for
-- workers that have a process in memory. The number tells workers which of them a database has.
SELECT;
