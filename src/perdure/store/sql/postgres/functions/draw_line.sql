-- Say to all others that the database was set back; one who has said so already is left alone.
CREATE OR REPLACE FUNCTION perdure.draw_line(known uuid, drawn uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE perdure.clock c SET line = drawn, line_at = perdure.now() WHERE c.one AND c.line IS NOT DISTINCT FROM known;
END
$$;
