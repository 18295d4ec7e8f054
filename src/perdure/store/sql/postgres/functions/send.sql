-- Put messages into inboxes that the engine sends by itself (answers, wishes to cancel, signals of processes), and those of
-- workers of the release before: nothing is refused. See perdure.send_within.
CREATE OR REPLACE FUNCTION perdure.send(
    m_id uuid[], m_process uuid[], m_type int[], m_name text[], m_payload bytea[], m_key text[], m_sender bytea[],
    OUT now bigint, OUT verdicts text[], OUT numbers int[], OUT owners uuid[]
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    SELECT s.now, s.verdicts, s.numbers, s.owners INTO now, verdicts, numbers, owners
    FROM perdure.send_within(m_id, m_process, m_type, m_name, m_payload, m_key, m_sender, NULL, NULL) AS s;
END
$$;
