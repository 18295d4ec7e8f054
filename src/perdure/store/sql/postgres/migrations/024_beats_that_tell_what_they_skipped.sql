-- No table changes: the functions are installed anew. A beat says which rows it has skipped, since they were locked.
SELECT 1;
