-- What a stream has not had of a process that is removed. The triggers are made anew after this (store/sqlite/event_log.py).
CREATE INDEX stream_record_process ON stream_record (process, type, run, event);
