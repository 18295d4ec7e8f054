-- Each portion of an operation asks which operations run. No other process stands in this index.
CREATE INDEX process_operation ON process (id) WHERE kind = 'perdure/operation';
