-- name: begin_immediate
BEGIN IMMEDIATE

-- name: begin_guest
-- What is written in the caller's transaction is there whole or not at all, whatever the caller does after an error.
SAVEPOINT perdure_guest

-- name: keep_guest
RELEASE perdure_guest

-- name: undo_guest
ROLLBACK TO perdure_guest

-- name: main_file
SELECT file FROM pragma_database_list WHERE name = 'main'
