-- A time as microseconds since 1970. Without a path of its own, so that it is put in where it stands (inlined): every name in it
-- says its schema instead. A time that is infinite, or that no calendar of the client has, is told as the lowest or highest
-- number, and is no error: what stands in one row must not end the claims of all.
CREATE OR REPLACE FUNCTION perdure.micros(timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN $1 OPERATOR(pg_catalog.>=) TIMESTAMP WITH TIME ZONE '9999-12-31 00:00:00+00' THEN BIGINT '9223372036854775807'
        WHEN $1 OPERATOR(pg_catalog.<) TIMESTAMP WITH TIME ZONE '0001-01-01 00:00:00+00' THEN BIGINT '-9223372036854775808'
        ELSE (extract(epoch FROM $1) OPERATOR(pg_catalog.*) 1000000)::bigint END
$$;
