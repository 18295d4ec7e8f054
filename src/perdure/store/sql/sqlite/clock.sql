-- name: tick
-- First in every write transaction: raises the mark of the clock, counts, leaves hints, and tells who is alive. The lead
-- is the row's own: the writer may not know it yet, and must write nothing that is later than the mark (rule 15).
UPDATE clock SET at = max(at, :mark, :machine + lead), ticks = ticks + 1, due_hints = due_hints + :due, done_hints = done_hints + :done
RETURNING at, (SELECT json_group_array(hex(id)) FROM worker WHERE ended_at IS NULL), lead, line, ticks

-- name: tick_at_once
-- The same where all is as usual: the clock is not behind, the database was not set back, and the one worker that the
-- batch names is alive.
UPDATE clock SET at = :now, ticks = ticks + 1, due_hints = due_hints + :due, done_hints = done_hints + :done
WHERE at <= :now AND ticks >= :ticks AND line IS :line AND lead = :lead
AND (:owner IS NULL OR EXISTS (SELECT 1 FROM worker WHERE id = :owner AND ended_at IS NULL))
RETURNING ticks

-- name: clock_mark
SELECT at, lead FROM clock

-- name: begin_line
-- In a new database that has its pages from another: its line is its own.
UPDATE clock SET line = lower(hex(randomblob(16)))

-- name: clock_line
SELECT line, line_at, ticks FROM clock

-- name: draw_line
-- Tell all other stores that the database was set back; nothing changes if another store has told it already.
UPDATE clock SET line = :line, line_at = at WHERE line IS :known

-- name: clock_lead
SELECT at, lead, slewed_at, mending FROM clock

-- name: keep_lead
UPDATE clock SET lead = :lead, slewed_at = :machine, mending = mending AND :lead > 0,
    lead_since = CASE WHEN :lead > 0 THEN coalesce(lead_since, at) END

-- name: read_clocks
SELECT json_group_array(json_array(
    'clock', version, max(at, :now), :machine, lead, lead_since, mending, changed_at, who, why, origin
)) FROM clock

-- name: write_clock
UPDATE clock SET version = :version, mending = :mending, changed_at = :changed_at, who = :who, why = :why,
    origin = :origin
WHERE version = :version - 1

-- name: clock_hints
SELECT due_hints, done_hints FROM clock

-- name: leave_due_hint
UPDATE clock SET due_hints = due_hints + 1

-- name: marks
-- How far these processes are, with the owner that each has.
WITH given (id) AS (VALUES /* each */ (?) /* end */)
SELECT json_group_array(json_array(hex(process.id), process.token, process.version, hex(process.owner)))
FROM given CROSS JOIN process ON process.id = given.id

-- name: count_tables
SELECT count(*) FROM sqlite_master
