-- line: a name drawn anew when somebody finds that the database was set back (a backup put in its place); ticks counts
-- the transactions that write. Whoever was told of a later tick, or of another line, knows by them.
-- lead: how far the store's time is ahead of the machine's clock, since that was put back; see kernel/clock.py.
ALTER TABLE clock ADD COLUMN line TEXT;
ALTER TABLE clock ADD COLUMN line_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE clock ADD COLUMN ticks INTEGER NOT NULL DEFAULT 0;
ALTER TABLE clock ADD COLUMN lead INTEGER NOT NULL DEFAULT 0;
ALTER TABLE clock ADD COLUMN lead_since INTEGER;
ALTER TABLE clock ADD COLUMN slewed_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE clock ADD COLUMN mending INTEGER NOT NULL DEFAULT 0;
ALTER TABLE clock ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE clock ADD COLUMN changed_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE clock ADD COLUMN who TEXT NOT NULL DEFAULT '';
ALTER TABLE clock ADD COLUMN why TEXT NOT NULL DEFAULT '';
ALTER TABLE clock ADD COLUMN origin TEXT NOT NULL DEFAULT '';
UPDATE clock SET line = lower(hex(randomblob(16)));
