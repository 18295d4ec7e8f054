"""A commit on its own takes a shorter way than a batch, and leaves exactly the same behind."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.kernel.commit import Commit, Start, Verdict
from perdure.kernel.event import EventType
from perdure.kernel.process import Process, Status
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import finished, forced, going_on, released, resting
from tests.store.ground_postgres import PostgresGround

pytestmark = pytest.mark.usefixtures("warm")

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
    rows = [await trial.owned(worker) for _ in range(3)]
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
    row = await trial.owned(await trial.worker())
    async with postgres.locked(row.id):
        assert (await trial.commit(going_on(row))).verdict is Verdict.BUSY
    assert (await trial.commit(going_on(row))).verdict is Verdict.APPLIED


async def test_a_process_that_is_not_there_refuses_a_commit_alone(trial: Trial) -> None:
    assert (await trial.commit(going_on(trial.process()))).verdict is Verdict.REFUSED


def outward(trial: Trial, row: Process, target: Process, shape: str) -> Commit:
    """A commit that sends something out: a child, an answer, both, several, or one with a key."""
    starts = (Start(trial.process(parent=row.id)),) if shape in ("child", "both") else ()
    key = "once" if shape == "keyed" else None
    count = {"child": 0, "several": 2}.get(shape, 1)
    sends = tuple(trial.signal(target.id, key=key) for _ in range(count))
    commit = going_on(row) if shape in ("child", "both") else finished(row)
    return replace(commit, starts=starts, sends=sends)


@pytest.mark.parametrize("shape", ["child", "answer", "both", "several", "keyed"])
@pytest.mark.parametrize("owned", [True, False])
async def test_what_a_commit_sends_out_is_the_same_alone_and_in_a_batch(
    trial: Trial, shape: str, *, owned: bool
) -> None:
    worker = await trial.worker()
    rows = [await trial.owned(worker) for _ in range(3)]
    targets = [await trial.owned(worker) if owned else await trial.started() for _ in range(2)]
    alone, batched = (outward(trial, row, target, shape) for row, target in zip(rows, targets, strict=False))
    answers = [*await trial.store.commit([alone]), (await trial.store.commit([going_on(rows[2]), batched]))[1]]
    assert answers[0] == answers[1]
    assert answers[0].verdict is Verdict.APPLIED
    for one, other in zip([rows[0], targets[0]], [rows[1], targets[1]], strict=True):
        whole, same = await trial.whole(one.id), await trial.whole(other.id)
        blank = {"id": b"", "created_at": 0, "opened_at": 0, "due_at": None}
        assert replace(whole.process, **blank) == replace(same.process, **blank)
        assert [(sent.number, sent.key, sent.payload) for sent in whole.messages] == [
            (sent.number, sent.key, sent.payload) for sent in same.messages
        ]
    children = [start.process.id for start in (*alone.starts, *batched.starts)]
    assert [(await trial.row(id)).token for id in children] == [0] * len(children)
    before = await trial.stored()
    assert (await trial.commit(alone)).verdict is Verdict.APPLIED  # sent again: nothing is added
    assert await trial.stored() == before


async def test_a_late_commit_sends_nothing_out_alone_either(trial: Trial) -> None:
    worker = await trial.worker()
    row, target = await trial.owned(worker), await trial.owned(worker)
    late = outward(trial, replace(row, token=9), target, "both")
    assert (await trial.commit(late)).verdict is Verdict.REFUSED
    assert (await trial.row(target.id)).inbox == 0
    assert {one.id for one in await trial.stored()} == {row.id, target.id}


async def test_a_target_that_somebody_holds_keeps_a_commit_alone_busy(postgres: PostgresGround, trial: Trial) -> None:
    worker = await trial.worker()
    row, target = await trial.owned(worker), await trial.owned(worker)
    commit = outward(trial, row, target, "answer")
    async with postgres.locked(target.id):
        assert (await trial.commit(commit)).verdict is Verdict.BUSY
        assert await trial.row(row.id) == row
    assert (await trial.commit(commit)).verdict is Verdict.APPLIED
    assert (await trial.row(target.id)).inbox == 1


async def test_a_message_alone_is_answered_as_in_a_batch(trial: Trial) -> None:
    worker = await trial.worker()
    ended = await trial.done(finished(await trial.owned(worker)))
    for row in (await trial.owned(worker), await trial.started(), ended, trial.process()):
        first, second = trial.signal(row.id), trial.signal(row.id)
        alone = await trial.store.send([first])
        [_, batched] = await trial.store.send([trial.signal(ended.id), second])
        assert (alone[0].verdict, alone[0].owner) == (batched.verdict, batched.owner)
        assert (await trial.store.send([first])) == [replace(alone[0], now=alone[0].now)]
