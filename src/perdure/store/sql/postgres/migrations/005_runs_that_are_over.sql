-- Processes with former runs, so that pruning finds them, and the oldest run whose history is still whole (null: the first).
ALTER TABLE perdure.process ADD COLUMN IF NOT EXISTS first_run int;
CREATE INDEX IF NOT EXISTS process_reopened ON perdure.process (id) WHERE run > 2 AND due_at IS NOT NULL;
