-- Microseconds since 1970 as a time. Inlined, and so every name in it says its schema (see micros).
CREATE OR REPLACE FUNCTION perdure.instant(bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT TIMESTAMP WITH TIME ZONE '1970-01-01 00:00:00+00'
        OPERATOR(pg_catalog.+) ($1 OPERATOR(pg_catalog.*) INTERVAL '1 microsecond')
$$;
