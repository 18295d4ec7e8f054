-- No table changes: the functions are installed anew. A commit may bring the letter that its turn has received.
SELECT 1;
