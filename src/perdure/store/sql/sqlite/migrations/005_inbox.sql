-- What waits in an inbox is counted on the row, so that a send can be refused, and marked, so that it is found by name.
-- Only signals (1) and calls (7) count: they alone may wait for as long as they like.

ALTER TABLE process ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0;
ALTER TABLE process ADD COLUMN waiting_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE message ADD COLUMN waits INTEGER;

-- Letters that a process has heard and its code has not received.
CREATE INDEX message_waits ON message (process, name, number) WHERE waits = 1;

-- A trigger, so that a worker of the release before counts too while it works beside this one.
CREATE TRIGGER letter_consumed AFTER UPDATE OF consumed_by ON message
WHEN (NEW.type = 1 OR NEW.type = 7) AND (OLD.consumed_by IS NULL) <> (NEW.consumed_by IS NULL)
BEGIN
    UPDATE process SET waiting = max(0, waiting + iif(NEW.consumed_by IS NULL, 1, -1)), waiting_bytes = max(0, waiting_bytes + iif(NEW.consumed_by IS NULL, 1, -1) * length(NEW.payload)) WHERE id = NEW.process; END;

UPDATE process SET waiting = found.letters, waiting_bytes = found.bytes
FROM (
    SELECT process, count(*) AS letters, sum(length(payload)) AS bytes FROM message
    WHERE consumed_by IS NULL AND (type = 1 OR type = 7) GROUP BY process
) AS found
WHERE process.id = found.process;
