-- No table changes: the functions are installed anew. Former runs are removed only of a process that is still at its version.
SELECT 1;
