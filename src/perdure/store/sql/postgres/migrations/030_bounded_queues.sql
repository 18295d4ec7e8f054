-- No table changes: the functions are installed anew. What a claim takes of queues with limits, and what a pruning removes, has a bound.
SELECT 1;
