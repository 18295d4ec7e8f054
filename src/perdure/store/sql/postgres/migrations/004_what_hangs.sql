-- What blocks the event loop of a worker, as its watchdog found it (JSON); its next sign of life takes it back.
ALTER TABLE perdure.worker ADD COLUMN hang bytea;
