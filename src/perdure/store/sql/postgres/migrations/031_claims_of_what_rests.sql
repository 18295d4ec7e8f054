-- No table changes: a new function takes processes that only wait, for who has them in memory and calls them.
SELECT 1;
