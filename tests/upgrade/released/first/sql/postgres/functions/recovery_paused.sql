-- Whether a person has paused automatic recovery. Said to be costly, so that a claim asks only where a lease has lapsed.
CREATE OR REPLACE FUNCTION perdure.recovery_paused() RETURNS boolean LANGUAGE plpgsql STABLE COST 100000
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN EXISTS (SELECT FROM perdure.queue q WHERE q.name = ' recovery' AND q.blocked_at IS NOT NULL);
END
$$;
