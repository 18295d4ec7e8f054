"""A commit on its own takes a shorter way than a batch, and leaves exactly the same behind."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.kernel.commit import Commit, Verdict
from perdure.kernel.event import EventType
from perdure.kernel.process import Process, Status
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import finished, forced, going_on, released, resting
from tests.store.ground_postgres import PostgresGround

RARE: dict[str, Any] = {
    "deaths": 1, "alone_deaths": 2, "deadline": 1 << 50, "priority": 0, "attributes": b'{"a":1}', "state": b"1",
    "progress": b"2", "error": b"3", "awaiting": "timer", "code": "2",
}  # fmt: skip


def shapes(row: Process, now: int) -> list[Commit]:
    """One commit of every kind for a row in hand."""
    return [
        going_on(row, steps=3),
        going_on(row, **RARE),
        going_on(row, events=()),
        going_on(row, run=2, opened_at=5),
        going_on(row, not_before=now),
        going_on(row, not_before=now + 1),
        released(row, now + 60 * SECOND),
        released(row, now - SECOND, **RARE),
        released(row, now, seen=1),
        resting(row, now + SECOND),
        resting(row, now + SECOND, Status.BROKEN, error=b"1"),
        finished(row),
        finished(row, seen=1),
        finished(row, Status.FAILED, seen=1, error=b"1", result=None),
        forced(row),
        forced(row, EventType.TERMINATED, status=Status.CANCELLED, due_at=None),
        going_on(replace(row, token=row.token + 1)),
        going_on(replace(row, version=5)),
    ]


SHAPES = len(shapes(Process(b"0" * 16, "", None, b""), 0))


@pytest.mark.parametrize("shape", range(SHAPES))
@pytest.mark.parametrize("messages", [0, 1])
async def test_a_commit_has_the_same_answer_and_leaves_the_same_row_alone_and_in_a_batch(
    trial: Trial, shape: int, messages: int
) -> None:
    worker = await trial.worker()
    rows = [await trial.in_hand(worker) for _ in range(3)]
    for row in rows[:2]:
        for _ in range(messages):
            await trial.send(row.id)
    now = await trial.time.now()
    alone, batched = (shapes(row, now)[shape] for row in rows[:2])
    answers = [*await trial.store.commit([alone]), (await trial.store.commit([going_on(rows[2]), batched]))[1]]
    assert answers[0] == answers[1]
    wholes = [await trial.whole(row.id) for row in rows[:2]]
    assert replace(wholes[0].process, id=b"") == replace(wholes[1].process, id=b"")
    assert wholes[0].events == wholes[1].events
    again = [*await trial.store.commit([alone]), (await trial.store.commit([going_on(rows[2]), batched]))[1]]
    assert again[0] == again[1]
    assert [await trial.whole(row.id) for row in rows[:2]] == wholes


async def test_a_locked_row_is_busy_for_a_commit_alone(postgres: PostgresGround, trial: Trial) -> None:
    row = await trial.in_hand(await trial.worker())
    async with postgres.locked(row.id):
        assert (await trial.commit(going_on(row))).verdict is Verdict.BUSY
    assert (await trial.commit(going_on(row))).verdict is Verdict.APPLIED


async def test_a_process_that_is_not_there_refuses_a_commit_alone(trial: Trial) -> None:
    assert (await trial.commit(going_on(trial.process()))).verdict is Verdict.REFUSED
