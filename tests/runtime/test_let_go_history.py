"""What has happened to a process is in its history although its worker lets it go at once; its times never run back."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from msgspec import json

from perdure import Handle, Policy, Retry, WorkerOptions, Workflow, limits, step, workflow
from perdure.engine import Engine
from perdure.errors import BadRecord
from perdure.kernel.commit import Commit
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.runtime.instance import Instance
from perdure.testing.faults import FaultyStore, Gate
from perdure.turns.patches import patched
from tests.runtime.conftest import Open, lose, until, until_row
from tests.runtime.test_damaged_rows import damage

began: list[str] = []
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
STAYS = WorkerOptions(policies={"errand.*.act": Policy(revival_delay=0)})


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> None:
    began.clear()
    gates.clear()
    monkeypatch.setattr(limits, "HANDOVER_FIRST_SECONDS", 0.01)
    monkeypatch.setattr(limits, "HANDOVER_LONGEST_SECONDS", 0.02)


@step
async def other(what: str) -> None:
    pass


@step
async def act(what: str) -> str:
    began.append(what)
    await gates[what].wait()
    return what


@step(retry=Retry(attempts=9, first=1000, cap=1000, jitter=0))
async def fails(what: str) -> None:
    began.append(what)
    await gates[what].wait()
    raise ConnectionError(what)


@step(retry=Retry(attempts=2, first=0.001, jitter=0, then=["break"]))
async def breaks() -> None:
    raise ConnectionError("nobody answers")


@workflow(name="errand")
async def errand() -> str:
    await other("one")
    return await act("goods")


@workflow(name="errand")
async def other_errand() -> None:
    """Later code, to which the history does not fit."""
    await act("one")


@workflow(name="errand")
async def patched_errand() -> str:
    """Later code, of whose patch the code before knows nothing."""
    await other("one")
    if patched("better"):
        await other("two")
    return await act("goods")


@workflow
async def patched_at_once() -> None:
    patched("better")
    await other("one")


@workflow
async def both() -> None:
    await asyncio.gather(act("goods"), fails("price"))


@workflow
async def breaking() -> None:
    await breaks()


def held(engine: Engine) -> list[Instance]:
    """The processes that its worker holds."""
    assert engine.worker is not None
    return list(engine.worker.scheduler.instances.values())


async def begun(opened: Open, code: Workflow[Any, Any] = errand) -> tuple[Engine, Handle[Any]]:
    """A process whose step has begun, and the engine whose worker holds it, for a brief lease."""
    brief = WorkerOptions(lease_seconds=0.4, beat_seconds=0.1)
    engine, _ = await opened(work=True, workflows=[code], options=brief)
    handle: Handle[Any] = await engine.start(code)
    await until(lambda: began == ["goods"])
    return engine, handle


async def lapse(engine: Engine) -> None:
    """Its worker lives, and lets all its leases lapse."""
    assert engine.worker is not None
    await engine.worker.claimer.loop.stop()
    for instance in held(engine):
        engine.worker.scheduler.drop(instance)


async def lapsed(opened: Open, code: Workflow[Any, Any] = errand) -> Handle[Any]:
    """A process whose step has begun, and whose lease lapses."""
    engine, handle = await begun(opened, code)
    await lapse(engine)
    return handle


async def history(engine: Engine, handle: Handle[Any]) -> list[str]:
    """The events of the history by their names; their times never run back."""
    events = await engine.process(handle.id).history()
    assert all(later.at >= sooner.at for sooner, later in pairwise(events)), [(one.type.name, one.at) for one in events]
    return [event.type.name for event in events]


async def broken(engine: Engine, handle: Handle[Any]) -> list[str]:
    """The history of a process that was parked."""
    await until_row(engine, handle.id, lambda row: row.status is Status.BROKEN)
    return await history(engine, handle)


# -- a takeover --------------------------------------------------------------------------------------------------------


async def test_a_takeover_is_recorded_though_the_process_is_parked_since_its_step_is_not_to_be_revived(
    opened: Open,
) -> None:
    handle = await lapsed(opened)
    engine, _ = await opened(work=True, workflows=[errand], options=STAYS)
    assert await broken(engine, handle) == ["STEP_COMPLETED", "REVIVED", "BROKEN"]
    [revived] = [one for one in await engine.process(handle.id).history() if one.type is EventType.REVIVED]
    evidence = json.decode(revived.payload or b"")
    assert (evidence["lease"], evidence["sweep"], evidence["by"]) == ("lapsed", "claim", engine.machine.name())
    assert engine.metrics()["takeovers"] == engine.metrics()["processes_revived"] == 1
    assert began == ["goods"]


async def test_a_takeover_is_recorded_though_the_history_does_not_fit_the_code(opened: Open) -> None:
    handle = await lapsed(opened)
    engine, _ = await opened(work=True, workflows=[other_errand])
    assert await broken(engine, handle) == ["STEP_COMPLETED", "REVIVED", "BROKEN"]
    assert engine.metrics()["takeovers"] == engine.metrics()["processes_revived"] == 1


async def test_a_takeover_is_recorded_though_a_record_cannot_be_read(opened: Open, store_url: str) -> None:
    handle = await lapsed(opened)
    assert await damage(store_url, handle.id, "event", "type: 77")
    engine, _ = await opened(work=True, workflows=[errand])
    await until_row(engine, handle.id, lambda row: row.status is Status.BROKEN and row.events == 3)


async def test_what_counts_fewer_events_than_it_has_is_parked_without_any(opened: Open, store_url: str) -> None:
    handle = await lapsed(opened)
    assert await damage(store_url, handle.id, "process", "events: 0")
    engine, _ = await opened(work=True, workflows=[errand])
    await until_row(engine, handle.id, lambda row: row.status is Status.BROKEN and row.events == 0)


async def test_a_takeover_is_recorded_though_the_process_is_left_to_a_newer_worker_which_revives_no_step(
    opened: Open,
) -> None:
    handle = await lapsed(opened, patched_errand)
    old, _ = await opened(work=True, workflows=[errand])
    await until(lambda: old.telemetry.counters["processes_handed_over"])
    await old.close(0)
    engine, _ = await opened(work=True, workflows=[patched_errand], options=STAYS)
    before = ["STEP_COMPLETED", "PATCHED", "STEP_COMPLETED"]
    assert await broken(engine, handle) == [*before, "REVIVED", "BROKEN"]
    assert began == ["goods"], "its revival is off: the next worker must know of the loss"


async def test_a_takeover_is_recorded_though_the_database_refuses_what_was_written_with_it(opened: Open) -> None:
    first, handle = await begun(opened)
    engine, store = await opened(work=True, workflows=[errand])
    refused: list[Commit] = []

    async def refuse(name: str, argument: Any) -> None:
        for commit in argument if name == "commit" else ():
            if commit.after.status is not Status.BROKEN:
                refused.append(commit)
                raise BadRecord("it takes no such record")

    store.before = refuse
    await lapse(first)
    assert await broken(engine, handle) == ["STEP_COMPLETED", "REVIVED", "BROKEN"]
    assert refused


async def test_a_takeover_with_which_a_history_begins_tells_the_reply_address_that_it_was_received(
    opened: Open,
) -> None:
    engine, _ = await opened(work=True, workflows=[other_errand])
    client, _ = await opened()
    receiver = await client.start(both)
    handle = await client.start(other_errand.options(reply_to=receiver))
    await until(lambda: began == ["one"])
    [instance] = held(engine)
    assert engine.worker is not None
    await engine.worker.claimer.loop.stop()
    instance.note(EventType.REVIVED, instance.process.due_at or 0, b"{}")  # as if it were taken over at its end
    engine.worker.scheduler.release(instance)
    await until_row(client, handle.id, lambda row: row.owner is None)
    assert await history(client, handle) == ["REVIVED"]
    assert (await client.row(receiver.id)).inbox == 1


# -- a failed attempt --------------------------------------------------------------------------------------------------


async def failed_beside_a_commit(opened: Open) -> tuple[Engine, Handle[Any], Gate, Instance]:
    """A process one of whose steps has failed while the commit with the result of the other is under way."""
    engine, store = await opened(work=True, workflows=[both])
    handle = await engine.start(both)
    await until(lambda: len(began) == 2)
    store.before = gate = Gate("commit")
    gates["goods"].set()
    await gate.reached.wait()
    gates["price"].set()
    [instance] = held(engine)
    await until(lambda: [event.type for event in instance.events] == [EventType.ATTEMPT_FAILED])
    return engine, handle, gate, instance


async def test_an_attempt_that_has_failed_counts_though_the_process_is_handed_back(opened: Open) -> None:
    engine, handle, gate, instance = await failed_beside_a_commit(opened)
    assert engine.worker is not None
    await engine.worker.claimer.loop.stop()
    engine.worker.scheduler.release(instance)
    gate.open.set()
    await until_row(engine, handle.id, lambda row: row.owner is None)
    assert await history(engine, handle) == ["STEP_COMPLETED", "ATTEMPT_FAILED"]
    assert len(began) == 2


async def test_a_process_is_handed_back_though_the_database_refuses_to_record_what_has_happened(opened: Open) -> None:
    engine, handle, gate, instance = await failed_beside_a_commit(opened)
    assert engine.worker is not None
    await engine.worker.claimer.loop.stop()
    engine.worker.scheduler.release(instance)

    async def refuse(name: str, argument: Any) -> None:
        await gate(name, argument)
        if name == "commit" and any(EventType.ATTEMPT_FAILED in {one.type for one in each.events} for each in argument):
            raise BadRecord("it takes no such record")

    assert isinstance(engine.store, FaultyStore)
    engine.store.before = refuse
    gate.open.set()
    await until_row(engine, handle.id, lambda row: row.owner is None)
    assert await history(engine, handle) == ["STEP_COMPLETED"]


async def test_an_attempt_that_has_failed_is_in_the_history_of_what_is_parked(opened: Open) -> None:
    engine, handle, gate, instance = await failed_beside_a_commit(opened)
    assert engine.worker is not None
    engine.worker.scheduler.park(instance, RuntimeError("no way on"))
    gate.open.set()
    assert await broken(engine, handle) == ["STEP_COMPLETED", "ATTEMPT_FAILED", "BROKEN"]


# -- times -------------------------------------------------------------------------------------------------------------


async def test_what_breaks_after_its_last_attempt_has_broken_then(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[breaking])
    handle = await engine.start(breaking)
    assert await broken(engine, handle) == ["ATTEMPT_FAILED", "ATTEMPT_FAILED", "BROKEN"]


async def test_what_is_held_since_its_history_is_too_long_is_held_then(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HISTORY_WARN_EVENTS", 1)
    monkeypatch.setattr(limits, "HISTORY_HOLD_EVENTS", 1)
    engine, _ = await opened(work=True, workflows=[breaking])
    handle = await engine.start(breaking)
    await until_row(engine, handle.id, lambda row: row.status is Status.HELD)
    assert await history(engine, handle) == ["ATTEMPT_FAILED", "HELD"]


async def test_what_a_replay_records_anew_is_not_of_a_time_before_the_loss_of_the_worker(opened: Open) -> None:
    first, store = await opened(work=True, workflows=[patched_at_once])
    client, _ = await opened()
    store.before = gate = Gate("commit")
    handle = await client.start(patched_at_once)
    await gate.reached.wait()
    await lose(first, store)
    second, _ = await opened(work=True, workflows=[patched_at_once])
    await second.process(handle.id).result()
    gate.open.set()
    assert await history(second, handle) == ["REVIVED", "PATCHED", "STEP_COMPLETED", "COMPLETED"]
