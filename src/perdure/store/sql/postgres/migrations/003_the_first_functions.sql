-- The functions and views were installed by this step. They stand in functions/ and are installed after the last one.
SELECT;
