-- No table changes: the functions are installed anew. A stream may begin with what is stored (fill_stream).
SELECT 1;
