-- The advisory lock of an incarnation: the last 8 bytes of its id, which are chance.
CREATE OR REPLACE FUNCTION perdure.worker_lock(uuid) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT ('x' || right(replace($1::text, '-', ''), 16))::bit(64)::bigint
$$;
