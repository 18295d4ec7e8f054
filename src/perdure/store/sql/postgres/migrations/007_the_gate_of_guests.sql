-- Guests hold this table in SHARE mode while they hold keys, and starts of keys take it for a moment in another: unlike an
-- advisory lock, which whoever may connect can take, it is closed to strangers. It has no columns and never a row.
CREATE TABLE perdure.gate ();
