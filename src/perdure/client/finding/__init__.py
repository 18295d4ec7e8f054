"""Finding processes by what is wrong with them: a small query language, and failures grouped by their cause."""
