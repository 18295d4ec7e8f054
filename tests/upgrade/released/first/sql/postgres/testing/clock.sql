-- The test-only door to the store's clock; nothing in the engine calls it.

-- name: freeze_clock
UPDATE perdure.clock SET fake = perdure.instant($1)

-- name: move_clock
UPDATE perdure.clock SET fake = coalesce(fake, clock_timestamp()) + $1::bigint * interval '1 microsecond'

-- name: read_clock
SELECT perdure.micros(perdure.now())
