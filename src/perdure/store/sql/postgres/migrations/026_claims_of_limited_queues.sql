-- No table changes: the functions are installed anew. Claims of queues and kinds with limits keep these at all times, and give
-- each kind of work and each share its turn.
SELECT 1;
