-- Functions alone, which are installed after the last migration: a commit with an empty progress leaves the row's as it is.
-- The number tells workers which of them a database has.
SELECT;
