"""Rule 3: what is read beside a row is read after its lock, in a later statement, and fits the row."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from perdure import limits
from perdure.kernel.commit import Start, StartVerdict
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import going_on, only, released
from tests.store.ground_postgres import PostgresGround

BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'perdure writes' AND wait_event_type = 'Lock'"
WRITTEN_ANEW = """
    WITH gone AS (DELETE FROM perdure.process WHERE id = $1 RETURNING *)
    INSERT INTO perdure.process SELECT * FROM gone
"""
OVERTAKE = """
    CREATE FUNCTION perdure.overtake() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO perdure.event (process, at, run, number, turn, token, version, type, place, name)
        VALUES (NEW.id, NEW.changed_at, NEW.run, NEW.events + 1, 0, NEW.token + 1, NEW.version + 1, 23, '', '');
        RETURN NULL;
    END $$;
    CREATE TRIGGER overtake AFTER UPDATE ON perdure.process
        FOR EACH ROW WHEN (NEW.token > OLD.token) EXECUTE FUNCTION perdure.overtake();
"""

OUTPACE = """
    CREATE FUNCTION perdure.outpace() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO perdure.message (id, process, number, type, name, payload, at)
        VALUES (gen_random_uuid(), NEW.id, NEW.inbox + 1, 1, 'late', repeat('x', 3000)::bytea, NEW.changed_at);
        RETURN NULL;
    END $$;
    CREATE TRIGGER outpace AFTER UPDATE ON perdure.process
        FOR EACH ROW WHEN (NEW.token > OLD.token) EXECUTE FUNCTION perdure.outpace();
"""


async def test_a_start_that_waited_for_a_rival_with_its_key_answers_with_the_rivals_id(
    postgres: PostgresGround, trial: Trial
) -> None:
    rival = trial.process(key="order/1")
    await trial.store.start([Start(rival)])
    row = await trial.row(rival.id)
    late = trial.process(key="order/1")
    async with postgres.outside.transaction():
        # The rival's row, written anew in a transaction that has not ended yet.
        await postgres.outside.execute(WRITTEN_ANEW, UUID(bytes=rival.id))
        starting = asyncio.create_task(trial.store.start([Start(late)]))
        while not await postgres.outside.fetchval(BLOCKED):
            pass
    [answer] = await starting
    assert (answer.verdict, answer.id) == (StartVerdict.EXISTS, rival.id)
    assert await trial.stored() == [row]


async def test_events_of_a_commit_that_came_in_after_the_claim_are_not_in_its_answer(
    postgres: PostgresGround, trial: Trial
) -> None:
    worker = await trial.worker()
    row = await trial.done(going_on(await trial.owned(worker), steps=3))
    await trial.done(released(row, 0, steps=2))
    # A forcing command that is committed between the claim and the reading of the history leaves this behind.
    await postgres.outside.execute(OVERTAKE)
    try:
        taken = only((await trial.claim(worker)).claimed)
    finally:
        await postgres.outside.execute("DROP FUNCTION perdure.overtake CASCADE")
    assert [event.number for event in taken.events] == [1, 2, 3, 4, 5] == list(range(1, taken.process.events + 1))
    assert [event.number for event in (await trial.whole(row.id)).events] == [1, 2, 3, 4, 5, 6]


async def test_messages_that_came_in_after_the_claim_take_their_part_of_what_is_read_and_the_answer_says_so(
    postgres: PostgresGround, trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEARD_BYTES", 2_000)
    worker = await trial.worker()
    low, high = sorted([await trial.started(), await trial.started()], key=lambda one: one.id)
    for row in (low, high):
        await trial.send(row.id)
    await postgres.outside.execute(OUTPACE)
    try:
        claimed = {one.process.id: one for one in (await trial.claim(worker)).claimed}
    finally:
        await postgres.outside.execute("DROP FUNCTION perdure.outpace CASCADE")
    assert [message.number for message in claimed[low.id].messages] == [1] and not claimed[low.id].cut
    assert claimed[high.id].messages == () and claimed[high.id].cut
