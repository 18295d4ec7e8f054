-- No table changes: the functions are installed anew, since a start in the caller's own transaction brings its priority.
SELECT 1;
