-- No table changes: the functions are installed anew, since processes are also removed by rules, which a note tells of.
SELECT 1;
