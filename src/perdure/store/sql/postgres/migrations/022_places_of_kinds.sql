-- Which processes of kinds with limits have a place among the processes of their kind (kernel/kind.py). No other stands in it.
CREATE INDEX process_place ON perdure.process (kind, code, priority, due_at, id) WHERE share = ' place' AND due_at IS NOT NULL;
