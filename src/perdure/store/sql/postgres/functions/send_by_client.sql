-- Send signals and calls for a login that may send nothing else. It may not raise the limits of an inbox.
CREATE OR REPLACE FUNCTION perdure.send_by_client(
    m_id uuid[], m_process uuid[], m_type int[], m_name text[], m_payload bytea[], m_key text[], m_sender bytea[],
    most int DEFAULT NULL, most_bytes bigint DEFAULT NULL,
    OUT now bigint, OUT verdicts text[], OUT numbers int[], OUT owners uuid[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF m_type <@ '{1,7}' IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'this login may only send signals and calls';
    END IF;
    SELECT * INTO now, verdicts, numbers, owners
    FROM perdure.send_within(m_id, m_process, m_type, m_name, m_payload, m_key, m_sender,
                             least(most, 10000), least(most_bytes, 67108864));
END
$$;
