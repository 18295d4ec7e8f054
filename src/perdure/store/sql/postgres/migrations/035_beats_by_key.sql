-- No table changes: the functions are installed anew. What is sought by its key is found by its key, whenever its plan was made.
SELECT 1;
