-- name: tick
-- First in every write transaction: raises the mark of the clock, leaves hints, and tells who is alive.
UPDATE clock SET at = max(at, :now), due_hints = due_hints + :due, done_hints = done_hints + :done
RETURNING at, (SELECT json_group_array(hex(id)) FROM worker WHERE ended_at IS NULL)

-- name: clock_mark
SELECT at FROM clock

-- name: clock_hints
SELECT due_hints, done_hints FROM clock

-- name: leave_due_hint
UPDATE clock SET due_hints = due_hints + 1

-- name: count_tables
SELECT count(*) FROM sqlite_master
