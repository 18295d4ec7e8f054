-- The library's own processes (operations, schedules, checks, webhooks), which it looks for by their kind. No other stands in it.
CREATE INDEX process_library ON perdure.process (kind, id) WHERE kind >= 'perdure/' AND kind < 'perdure0';
