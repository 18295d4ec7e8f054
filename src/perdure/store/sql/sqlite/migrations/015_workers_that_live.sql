-- Who lives is asked in most transactions: without the rows of those that have ended, each with all that it hosted.
CREATE INDEX worker_alive ON worker (id) WHERE ended_at IS NULL;
CREATE INDEX worker_ended ON worker (ended_at) WHERE ended_at IS NOT NULL;
