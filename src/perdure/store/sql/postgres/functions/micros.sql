-- A time as microseconds since 1970. Without a path of its own, so that it is put in where it stands (inlined): every name in it
-- says its schema instead.
CREATE OR REPLACE FUNCTION perdure.micros(timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (extract(epoch FROM $1) OPERATOR(pg_catalog.*) 1000000)::bigint
$$;
