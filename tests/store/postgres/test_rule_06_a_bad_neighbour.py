"""Rule 6: a locked row is passed by at once; a bad value, or a person's lock on a table, stops nothing for long."""

from __future__ import annotations

import pytest

from perdure.errors import BadRecord, StoreUnavailable
from perdure.kernel.commit import Start, Verdict
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import going_on
from tests.store.ground_postgres import PostgresGround


async def test_a_row_locked_by_somebody_holds_up_neither_commits_nor_sends_nor_claims_nor_beats(
    postgres: PostgresGround, trial: Trial
) -> None:
    worker = await trial.worker()
    held, free = await trial.owned(worker), await trial.owned(worker)
    due = await trial.started()
    async with postgres.locked(held.id, due.id):
        commits = await trial.store.commit([going_on(held), going_on(free)])
        sends = await trial.store.send([trial.signal(held.id), trial.signal(free.id)])
        claimed = (await trial.claim(worker)).claimed
        lost = (await trial.beat(worker, held, free)).lost
    assert [answer.verdict for answer in commits] == ["busy", "applied"]
    assert [answer.verdict for answer in sends] == ["busy", "delivered"]
    assert (claimed, lost) == ((), ())


async def test_a_bad_value_stores_nothing_and_the_rest_goes_through_without_it(trial: Trial) -> None:
    worker = await trial.worker()
    rows = [await trial.owned(worker) for _ in range(5)]
    batch = [going_on(row, awaiting="a\0b" if place == 3 else "step") for place, row in enumerate(rows)]
    with pytest.raises(BadRecord):
        await trial.store.commit(batch)
    assert {row.version for row in await trial.stored()} == {0}
    answers = await trial.store.commit(batch[:3] + batch[4:])
    assert {answer.verdict for answer in answers} == {Verdict.APPLIED}


async def test_a_lock_on_a_whole_table_makes_the_store_unavailable_not_silent(
    postgres: PostgresGround, trial: Trial
) -> None:
    await postgres.outside.execute("ALTER FUNCTION perdure.start SET lock_timeout = '50ms'")
    try:
        async with postgres.outside.transaction():
            await postgres.outside.execute("LOCK TABLE perdure.process")
            with pytest.raises(StoreUnavailable, match="55P03"):
                await trial.store.start([Start(trial.process())])
    finally:
        await postgres.outside.execute("ALTER FUNCTION perdure.start SET lock_timeout = '5s'")
    await trial.store.start([Start(trial.process())])


async def test_every_function_that_waits_for_locks_has_a_limit(postgres: PostgresGround) -> None:
    rows = await postgres.outside.fetch(
        "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'perdure' "
        "AND EXISTS (SELECT FROM unnest(p.proconfig) c WHERE c LIKE 'lock_timeout=%')"
    )
    assert {row[0] for row in rows} >= {
        "start",
        "commit",
        "commit_bringing",
        "commit_bringing_alone",
        "send_within",
        "send_alone_within",
        "tell_within",
        "claim",
        "beat_telling_skipped",
        "enlist",
        "retire",
        "prune",
    }
