-- Processes with former runs, so that pruning finds them, and the oldest run whose history is still whole (null: the first).
ALTER TABLE process ADD COLUMN first_run INTEGER;
CREATE INDEX process_reopened ON process (id) WHERE run > 2 AND status <= 3;
