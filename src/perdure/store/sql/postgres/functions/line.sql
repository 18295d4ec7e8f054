-- Which database this is, and on which line; how long ago the line was drawn (microseconds).
CREATE OR REPLACE FUNCTION perdure.line(OUT database oid, OUT line uuid, OUT since bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    SELECT d.oid INTO database FROM pg_database d WHERE d.datname = current_database();
    SELECT c.line, perdure.micros(perdure.now()) - coalesce(perdure.micros(c.line_at), 0) INTO line, since
    FROM perdure.clock c WHERE c.one;
END
$$;
