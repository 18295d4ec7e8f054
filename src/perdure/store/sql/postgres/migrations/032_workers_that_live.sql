-- Who lives is asked every second: without the rows of those that have ended, each with all that it hosted.
CREATE INDEX worker_alive ON perdure.worker (id) WHERE ended_at IS NULL;
CREATE INDEX worker_ended ON perdure.worker (ended_at) WHERE ended_at IS NOT NULL;
