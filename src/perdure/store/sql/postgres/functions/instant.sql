-- Microseconds since 1970 as a time; the lowest and the highest number are the infinite times that micros tells so. Inlined,
-- and so every name in it says its schema (see micros).
CREATE OR REPLACE FUNCTION perdure.instant(bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN $1 OPERATOR(pg_catalog.=) BIGINT '9223372036854775807' THEN TIMESTAMP WITH TIME ZONE 'infinity'
        WHEN $1 OPERATOR(pg_catalog.=) BIGINT '-9223372036854775808' THEN TIMESTAMP WITH TIME ZONE '-infinity'
        ELSE TIMESTAMP WITH TIME ZONE '1970-01-01 00:00:00+00'
            OPERATOR(pg_catalog.+) ($1 OPERATOR(pg_catalog.*) INTERVAL '1 microsecond') END
$$;
