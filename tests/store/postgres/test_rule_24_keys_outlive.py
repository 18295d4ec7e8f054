"""Rule 24: a key that pruning leaves behind is respected, even by a start that races with the pruning."""

from __future__ import annotations

import asyncio

import pytest

from perdure.kernel.commit import Start, StartVerdict
from perdure.kernel.process import Status
from perdure.testing.conformance import Trial
from tests.store.ground_postgres import PostgresGround

BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'perdure writes' AND wait_event_type = 'Lock'"


@pytest.mark.parametrize(("given", "verdict"), [(b"[1]", StartVerdict.EXISTS), (b"[2]", StartVerdict.CONFLICT)])
async def test_a_start_that_waits_for_a_pruning_finds_the_key_that_it_leaves(
    postgres: PostgresGround, trial: Trial, given: bytes, verdict: StartVerdict
) -> None:
    first = trial.process(key="order/1", status=Status.COMPLETED, result=b"1")
    await trial.store.start([Start(first)])
    neighbour = trial.process(key="order/2")
    async with postgres.outside.transaction():
        pruned = await postgres.outside.fetchrow("SELECT * FROM perdure.prune(0, 3600000000, 10)")
        assert pruned["processes"] == 1
        late = trial.process(key="order/1", input=given)
        starting = asyncio.create_task(trial.store.start([Start(late), Start(neighbour)]))
        while not await postgres.outside.fetchval(BLOCKED):
            pass
    answers = await starting
    assert [(answer.verdict, answer.id) for answer in answers] == [
        (verdict, first.id),
        (StartVerdict.CREATED, neighbour.id),
    ]
    assert [row.id for row in await trial.stored()] == [neighbour.id]
