-- What waits in an inbox is counted on the row, so that a send can be refused, and marked, so that it is found by name.
-- Only signals (1) and calls (7) count: they alone may wait for as long as they like.
ALTER TABLE perdure.process ADD COLUMN waiting int;
ALTER TABLE perdure.process ADD COLUMN waiting_bytes bigint;
ALTER TABLE perdure.message ADD COLUMN waits boolean;
-- Letters that a process has heard and its code has not received.
CREATE INDEX message_waits ON perdure.message (process, name, number) WHERE waits;
UPDATE perdure.process p SET waiting = found.letters, waiting_bytes = found.bytes
FROM (
    SELECT m.process, count(*) AS letters, sum(octet_length(m.payload)) AS bytes FROM perdure.message m
    WHERE m.consumed_by IS NULL AND m.type IN (1, 7) GROUP BY m.process) AS found
WHERE p.id = found.process;
