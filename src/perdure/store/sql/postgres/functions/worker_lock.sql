-- The advisory lock of an incarnation: the last 8 bytes of its id, which are chance. Inlined, and so every name in it says its
-- schema (see micros).
CREATE OR REPLACE FUNCTION perdure.worker_lock(uuid) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT ('x' OPERATOR(pg_catalog.||) pg_catalog.right(pg_catalog.replace($1::pg_catalog.text, '-', ''), 16))::bit(64)::bigint
$$;
