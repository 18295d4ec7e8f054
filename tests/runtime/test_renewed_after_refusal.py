"""An attempt that did not begin, since its lease was over, begins once that is heard and the lease was renewed."""

from __future__ import annotations

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.engine import Engine
from perdure.errors import ProcessFailed
from perdure.kernel.event import EventType
from perdure.kernel.retry import Retry
from perdure.runtime.options import WorkerOptions
from perdure.runtime.steps.attempt_run import AttemptRun
from tests.runtime import hard
from tests.runtime.account import FLOWS, Account, booking
from tests.runtime.conftest import LIMIT, Open

done: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    done.clear()


async def refusing_once(engine: Engine) -> list[int]:
    """Refuse the next attempt as late; its lease is renewed before the event loop hears of that."""
    assert engine.worker is not None
    await engine.worker.heartbeat.guard.stop()
    scheduler, late_for = engine.worker.scheduler, engine.worker.scheduler.agent.late_for
    asked: list[int] = []

    def late(attempt_run: AttemptRun) -> bool:
        asked.append(attempt_run.number)
        if len(asked) > 1:
            return late_for(attempt_run)
        attempt_run.instance.lease_end = scheduler.time.monotonic() - 1
        refused = late_for(attempt_run)
        attempt_run.instance.renewed(scheduler.time.monotonic() + scheduler.lease_seconds)
        return refused

    scheduler.agent.late_for = late  # type: ignore[method-assign]
    return asked


@step(retry=Retry.NONE)
def in_thread() -> str:
    done.append("in thread")
    return "done"


@step(at_most_once=True)
def once() -> str:
    done.append("once")
    return "done"


@workflow
async def threaded() -> str:
    return await in_thread()


@workflow
async def careful() -> str:
    return await once()


async def test_a_step_in_a_thread_begins_after_all_and_that_is_its_first_attempt(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[threaded])
    asked = await refusing_once(engine)
    assert await (await engine.start(threaded)).result(LIMIT) == "done"
    assert (done, asked) == (["in thread"], [1, 1])
    assert engine.metrics()["leases_lost"] == 0


async def test_a_step_that_runs_at_most_once_begins_after_all_and_runs_once(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[careful])
    asked = await refusing_once(engine)
    handle = await engine.start(careful)
    assert await handle.result(LIMIT) == "done"
    assert (done, asked) == (["once"], [1, 1])
    events = await engine.store.history(handle.id_bytes, 1)
    assert [event.type for event in events].count(EventType.ATTEMPT_BEGUN) == 1


async def test_a_hard_step_begins_after_all(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[hard.packs])
    asked = await refusing_once(engine)
    assert await (await engine.start(hard.packs)).result(LIMIT) == hard.Parcel("ANVIL+FLUTE", 9301)
    assert asked == [1, 1, 1], "the first of two steps was refused once"


async def test_a_step_with_a_transaction_begins_after_all_and_its_effect_is_there_once(
    opened: Open, store_url: str
) -> None:
    account = Account(store_url)
    engine, _ = await opened(work=True, workflows=FLOWS)
    await account.open()
    asked = await refusing_once(engine)
    assert await (await engine.start(booking, account.kind, "a")).result(LIMIT) == "A"
    assert await account.booked() == ["a"]
    assert asked == [1, 1]


async def late_once(engine: Engine) -> list[bytes]:
    """Let the lease of the next process whose step asks for it be over, and stay over; these are the ids of such."""
    assert engine.worker is not None
    await engine.worker.heartbeat.guard.stop()
    scheduler, late_for = engine.worker.scheduler, engine.worker.scheduler.agent.late_for
    refused: list[bytes] = []

    def late(attempt_run: AttemptRun) -> bool:
        if not refused:
            refused.append(attempt_run.instance.process.id)
            attempt_run.instance.lease_end = scheduler.time.monotonic() - 1
        return late_for(attempt_run)

    scheduler.agent.late_for = late  # type: ignore[method-assign]
    return refused


@pytest.mark.parametrize("waiting", [0, 1])
async def test_a_late_hard_step_whose_lease_stays_over_has_its_process_let_go_at_once_and_leaves_its_cell_to_others(
    opened: Open, waiting: int
) -> None:
    engine, _ = await opened(work=True, workflows=[hard.packs], options=WorkerOptions(cells=1))
    await late_once(engine)
    handles = [await engine.start(hard.packs) for _ in range(1 + waiting)]
    assert [await one.result(LIMIT) for one in handles] == [hard.Parcel("ANVIL+FLUTE", 9301)] * len(handles)
    assert (engine.metrics()["leases_lost"], engine.metrics()["cells_killed"]) == (1, 0)


async def test_a_late_step_in_a_thread_whose_lease_stays_over_is_no_call_that_hangs(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STEP_LEFT_BEHIND_THREADS", 1)
    engine, _ = await opened(work=True, workflows=[threaded])
    assert engine.worker is not None
    refused = await late_once(engine)
    handle = await engine.start(threaded)
    assert await handle.result(LIMIT) == "done"
    assert (done, refused) == (["in thread"], [handle.id_bytes])
    assert not engine.worker.scheduler.agent.threads.held_up(in_thread)


async def test_a_late_step_with_a_transaction_whose_lease_stays_over_is_no_call_that_hangs(
    opened: Open, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STEP_LEFT_BEHIND_THREADS", 1)
    account = Account(store_url)
    engine, _ = await opened(work=True, workflows=FLOWS)
    await account.open()
    refused = await late_once(engine)
    handle = await engine.start(booking, account.kind, "a")
    assert await handle.result(LIMIT) == "A"
    assert (await account.booked(), refused) == (["a"], [handle.id_bytes])


@step
def unreserve(result: str | None) -> None:
    done.append("undone")


@step(undo=unreserve, retry=Retry.NONE)
def reserve() -> str:
    done.append("reserved")
    return "done"


@workflow
async def sale() -> None:
    await reserve()
    raise ValueError("sold out")


async def test_the_undo_of_a_step_does_not_wait_for_its_attempt_that_was_refused_as_late(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[sale])
    await late_once(engine)
    with pytest.raises(ProcessFailed, match="compensated: reserve:1"):
        await (await engine.start(sale)).result(LIMIT)
    assert done == ["reserved", "undone"]
