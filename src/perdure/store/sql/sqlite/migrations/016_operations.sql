-- Each portion of an operation asks which operations run. No other process stands in this index. It does not say
-- kind = 'perdure/operation': SQLite would plan every statement with kind = ? anew whenever a value is bound.
CREATE INDEX process_operation ON process (id) WHERE kind >= 'perdure/operation' AND kind <= 'perdure/operation';
