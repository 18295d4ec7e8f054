-- A time as microseconds since 1970.
CREATE OR REPLACE FUNCTION perdure.micros(timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (extract(epoch FROM $1) * 1000000)::bigint
$$;
