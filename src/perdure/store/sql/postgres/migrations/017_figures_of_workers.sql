-- What a worker has counted and holds, as its last sign of life told it (JSON): `perdure top` shows it.
ALTER TABLE perdure.worker ADD COLUMN figures bytea;
