-- No table changes: the functions are installed anew. What one statement does on behalf of many rows has a bound.
SELECT 1;
