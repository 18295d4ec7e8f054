-- name: tick
-- First in every write transaction: raises the mark of the clock, leaves hints, and tells who is alive.
UPDATE clock SET at = max(at, :now), due_hints = due_hints + :due, done_hints = done_hints + :done
RETURNING at, (SELECT json_group_array(hex(id)) FROM worker WHERE ended_at IS NULL)

-- name: tick_at_once
-- The same where all is as usual: the clock is not behind, and the one worker that the batch names is alive.
UPDATE clock SET at = :now, due_hints = due_hints + :due, done_hints = done_hints + :done
WHERE at <= :now AND (:owner IS NULL OR EXISTS (SELECT 1 FROM worker WHERE id = :owner AND ended_at IS NULL))

-- name: clock_mark
SELECT at FROM clock

-- name: clock_hints
SELECT due_hints, done_hints FROM clock

-- name: leave_due_hint
UPDATE clock SET due_hints = due_hints + 1

-- name: count_tables
SELECT count(*) FROM sqlite_master
