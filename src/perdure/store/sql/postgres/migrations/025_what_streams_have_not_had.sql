-- What a stream has not had of a process that is removed. The functions of the triggers are installed anew.
CREATE INDEX stream_record_process ON perdure.stream_record (process, type, run, first);
CREATE INDEX stream_inlet_process ON perdure.stream_inlet (process, type, run, first);
