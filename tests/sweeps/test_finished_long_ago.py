"""Stuck: finished processes fill the tables. After their retention they are removed; their keys are kept a while."""

from __future__ import annotations

import pytest

from perdure import limits
from perdure.kernel.commit import Start, StartVerdict
from perdure.kernel.process import Process, Status
from perdure.runtime.sweeps import finished_long_ago
from perdure.testing.conformance.trial import finished, resting
from tests.sweeps.watch import DAY, Watch

FAILURE = b'{"type":"X","message":"why"}'


async def ended(watch: Watch, status: Status = Status.COMPLETED, **fields: object) -> Process:
    """A process that has ended just now."""
    row = await watch.trial.owned(await watch.trial.worker(), **fields)
    told = {} if status is Status.COMPLETED else {"result": None, "error": FAILURE}
    return await watch.trial.done(finished(row, status, **told))


async def test_what_finished_longer_ago_is_removed_with_all_that_is_its_own(watch: Watch) -> None:
    context = await watch.context()
    old = [await ended(watch, status) for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED)]
    await watch.trial.send(old[0].id)
    await watch.passed(DAY - 1)
    lately = await ended(watch)
    assert await finished_long_ago.sweep(context) == 0
    await watch.passed(2)
    assert await finished_long_ago.sweep(context) == 3
    assert [row.id for row in await watch.trial.stored()] == [lately.id]
    assert await watch.store.history(old[0].id, 1) == []
    assert await watch.store.messages([(old[0].id, 0)]) == []
    assert await watch.untouched([lately])


@pytest.mark.parametrize("status", [Status.RUNNING, Status.HELD, Status.BROKEN])
async def test_what_has_not_ended_is_kept_however_old_it_is(watch: Watch, status: Status) -> None:
    context = await watch.context()
    row = await watch.trial.owned(await watch.trial.worker())
    error = None if status is Status.RUNNING else FAILURE
    rested = await watch.trial.done(resting(row, await watch.store.now(), status, events=(), error=error))
    await watch.passed(100 * DAY)
    assert await finished_long_ago.sweep(context) == 0
    assert (await watch.trial.row(row.id)).version == rested.version


async def test_rule_24_the_key_of_a_removed_process_still_answers_and_is_free_in_the_end(watch: Watch) -> None:
    context = await watch.context()
    old = await ended(watch, key="A-1")
    await watch.passed(DAY + 1)
    assert await finished_long_ago.sweep(context) == 1
    again = Start(watch.trial.process(key="A-1"))
    [answer] = await watch.store.start([again])
    assert (answer.verdict, answer.id) == (StartVerdict.EXISTS, old.id)
    await watch.passed(DAY + 1)
    assert await finished_long_ago.sweep(context) == 0
    [answer] = await watch.store.start([again])
    assert answer.verdict is StartVerdict.CREATED


async def test_two_supervisors_at_once_count_a_removal_once(watch: Watch) -> None:
    for _ in range(4):
        await ended(watch)
    await watch.passed(DAY + 1)
    assert sum(await watch.at_once(finished_long_ago.sweep, "prune")) == 4
    assert await watch.trial.stored() == []


async def test_a_round_removes_a_bounded_batch_of_the_oldest(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 2)
    context = await watch.context()
    rows = []
    for _ in range(3):
        rows.append(await ended(watch))
        await watch.passed(1)
    await watch.passed(DAY)
    assert await finished_long_ago.sweep(context) == 2
    assert [row.id for row in await watch.trial.stored()] == [rows[-1].id]
    assert [await finished_long_ago.sweep(context) for _ in range(2)] == [1, 0]


async def test_after_a_store_error_the_next_round_removes_it(watch: Watch) -> None:
    context = await watch.context()
    await ended(watch)
    await watch.passed(DAY + 1)
    assert await watch.after_an_outage(context, finished_long_ago.sweep, "prune") == 1
