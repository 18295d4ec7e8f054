-- No table changes: the functions are installed anew. A command that was outrun takes a process only from an owner.
SELECT 1;
