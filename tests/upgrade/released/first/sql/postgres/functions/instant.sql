-- Microseconds since 1970 as a time.
CREATE OR REPLACE FUNCTION perdure.instant(bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT timestamptz '1970-01-01 00:00:00+00' + $1 * interval '1 microsecond'
$$;
