"""The process cache: a process that only waits goes on from memory, if nothing has happened to it meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import Handle, Workflow, limits, receive, set_state
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.engine import Engine
from perdure.errors import DefinitionError
from perdure.kernel.message import Message, MessageType
from perdure.kernel.names import id_text
from perdure.kernel.process import Status
from perdure.runtime import claimer
from perdure.runtime.instance import Instance
from perdure.runtime.options import WorkerOptions
from perdure.runtime.scheduler import Scheduler
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT, Open, until, until_row

begun: list[str] = []
"""A line for each time that the code of a process was begun: at its start, and by each replay."""


@pytest.fixture(autouse=True)
def _nothing_has_begun() -> None:
    begun.clear()


@step
async def effect(n: int) -> int:
    return n + 1


@workflow
async def counting(signals: int) -> int:
    begun.append("counting")
    total = 0
    for _ in range(signals):
        total += await effect(await receive("add", int))
        set_state(total)
    return total


async def rests(engine: Engine, id: str, signals: int = 0) -> None:
    """Wait until the process has been let go, after so many signals, and its worker knows: others may know before."""
    row = await until_row(engine, id, lambda row: row.owner is None and row.seen == signals and row.awaiting)
    await until(lambda: engine.worker is not None and row.id not in engine.worker.scheduler.instances)


def hits(engine: Engine) -> tuple[int, int]:
    figures = engine.metrics()
    return int(figures["cache_hits"]), int(figures["cache_misses"])


async def test_a_process_that_only_waits_goes_on_without_a_replay(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[counting])
    handle = await engine.start(counting, 5)
    for number in range(5):
        await rests(engine, handle.id, number)
        await handle.signal("add", number)
    assert await handle.result(LIMIT) == 15
    assert begun == ["counting"]
    assert hits(engine) == (5, 0)
    row = await engine.row(handle.id)
    events = await store.history(row.id, row.run)
    assert [event.number for event in events] == list(range(1, 12))
    assert row.token == 6, "each wake was a claim, with a token of its own"


async def test_a_claim_reads_the_last_event_alone_of_what_is_in_memory(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = await opened(work=True, workflows=[counting])
    handle = await engine.start(counting, 3)
    read: list[tuple[bool, list[int], list[int]]] = []
    adopt = claimer.adopt

    def adopted(scheduler: Any, claimed: Any, sent: float) -> Any:
        numbers = [event.number for event in claimed.events], [message.number for message in claimed.messages]
        read.append((claimed.cached, *numbers))
        return adopt(scheduler, claimed, sent)

    monkeypatch.setattr(claimer, "adopt", adopted)
    for number in range(3):
        await rests(engine, handle.id, number)
        await handle.signal("add", number)
    assert await handle.result(LIMIT) == 6
    assert read == [(True, [], [1]), (True, [2], [2]), (True, [4], [3])]


async def test_with_no_room_every_wake_is_a_replay(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[counting], options=WorkerOptions(cached=0))
    handle = await engine.start(counting, 3)
    for number in range(3):
        await rests(engine, handle.id, number)
        await handle.signal("add", number)
    assert await handle.result(LIMIT) == 6
    assert begun == ["counting"] * 4
    assert hits(engine) == (0, 2), "the first wake has no history to replay"


async def test_the_oldest_give_way_when_there_are_too_many(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[counting], options=WorkerOptions(cached=2))
    handles = []
    for _ in range(3):
        handles.append(await engine.start(counting, 1))
        await rests(engine, handles[-1].id)
    assert engine.worker is not None and len(engine.worker.scheduler.cache) == 2
    for handle in handles:
        await handle.signal("add", 1)
        assert await handle.result(LIMIT) == 2
    assert begun == ["counting"] * 4
    assert hits(engine)[0] == 2


@step
async def large() -> str:
    return "x" * 10_000


@workflow
async def weighty() -> str:
    text = await large()
    await receive("go")
    return text[:1]


async def test_the_oldest_give_way_when_they_hold_too_many_bytes(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CACHED_BYTES", 25_000)
    engine, _ = await opened(work=True, workflows=[weighty])
    handles = []
    for _ in range(4):
        handles.append(await engine.start(weighty))
        await rests(engine, handles[-1].id)
    assert engine.worker is not None and len(engine.worker.scheduler.cache) == 2
    for handle in handles:
        await handle.signal("go")
        assert await handle.result(LIMIT) == "x"
    assert hits(engine) == (2, 2)


async def test_what_another_worker_has_done_meanwhile_is_replayed(opened: Open) -> None:
    first, _ = await opened(work=True, workflows=[counting])
    handle = await first.start(counting, 3)
    await rests(first, handle.id)
    assert first.worker is not None
    await first.worker.claimer.loop.stop()
    second, _ = await opened(work=True, workflows=[counting])
    await handle.signal("add", 1)
    await rests(second, handle.id, 1)
    await second.close(0)
    first.worker.claimer.loop.start()
    await handle.signal("add", 2)
    await rests(first, handle.id, 2)
    await handle.signal("add", 3)
    assert await handle.result(LIMIT) == 9
    assert hits(first) == (1, 1), "after the replay it was in memory again"


async def test_what_a_person_has_done_meanwhile_is_replayed(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[counting])
    handle = await engine.start(counting, 2)
    await rests(engine, handle.id)
    await handle.signal("add", 1)
    await rests(engine, handle.id, 1)
    await handle.hold(who="anna")
    await handle.resume(who="anna")
    await handle.signal("add", 2)
    assert await handle.result(LIMIT) == 5
    assert len(begun) > 1
    types = [event.type.name for event in await handle.history()]
    assert types.count("HELD") == types.count("RESUMED") == 1


async def test_a_restored_history_that_went_another_way_is_replayed(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row has the token and the version that are in memory, but its last event is another one."""
    engine, _ = await opened(work=True, workflows=[counting])
    handle = await engine.start(counting, 2)
    await rests(engine, handle.id)
    await handle.signal("add", 1)
    await rests(engine, handle.id, 1)
    assert engine.worker is not None
    [kept] = engine.worker.scheduler.cache._instances.values()
    last = kept.last_event
    assert last is not None
    kept.last_event = replace(last, at=last.at - 1)
    await handle.signal("add", 2)
    assert await handle.result(LIMIT) == 5
    assert begun == ["counting"] * 2
    assert hits(engine) == (1, 1)


@workflow
async def waits_for_ever() -> None:
    begun.append("waiting")
    while True:
        try:
            await receive("never")
        except asyncio.CancelledError:
            begun.append("it does not want to end")


@workflow
async def fathering() -> None:
    await waits_for_ever.child.options(on_parent_end="terminate")()


async def test_an_order_to_end_is_carried_out_though_the_process_is_in_memory(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[fathering, waits_for_ever])
    handle = await engine.start(fathering)
    await until(lambda: "waiting" in begun)
    assert engine.worker is not None
    await until(lambda: engine.worker is not None and len(engine.worker.scheduler.cache) >= 1)
    await handle.terminate(who="anna")
    [born] = await engine.store.search(Search(kind="waits_for_ever"))
    row = await until_row(engine, id_text(born.id), lambda row: row.status is not Status.RUNNING)
    assert row.status is Status.CANCELLED
    assert begun == ["waiting"], "its code was not run again"


async def test_a_timer_that_is_far_away_wakes_its_process_from_memory(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HOLD_SECONDS", 0.0)
    engine, _ = await opened(work=True, workflows=[sleeping])
    handle = await engine.start(sleeping)
    assert await handle.result(LIMIT) == 3
    assert begun == ["sleeping"]
    assert hits(engine)[1] == 0


@workflow
async def sleeping() -> int:
    begun.append("sleeping")
    for _ in range(3):
        await asyncio.sleep(0.05)
    return 3


async def test_a_worker_that_stops_keeps_nothing(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[counting])
    handle = await engine.start(counting, 1)
    await rests(engine, handle.id)
    assert engine.worker is not None
    cache = engine.worker.scheduler.cache
    assert len(cache) == 1
    await engine.close(0)
    assert len(cache) == 0


@workflow
async def listing(signals: int) -> list[int]:
    return [await receive("add", int) for _ in range(signals)]


async def at_the_last_of(
    signals: int, opened: Open, flow: Workflow[[int], Any] = counting
) -> tuple[Engine, Handle[Any], Scheduler]:
    """A worker without room in memory, and a process that waits for the last of so many signals."""
    engine, _ = await opened(work=True, workflows=[flow], options=WorkerOptions(cached=0))
    handle = await engine.start(flow, signals)
    for number in range(signals - 1):
        await handle.signal("add", number)
    await rests(engine, handle.id, signals - 1)
    assert engine.worker is not None
    return engine, handle, engine.worker.scheduler


async def test_a_long_history_is_replayed_in_portions_and_the_loop_breathes(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REPLAY_EVENTS", 10)
    engine, handle, scheduler = await at_the_last_of(41, opened)
    seen = 0

    async def look() -> None:
        nonlocal seen
        while not scheduler.telemetry.counters["completed"]:
            if scheduler.replaying:
                seen += 1
                # What comes meanwhile does not reach the process before it is where it was.
                engine.worker.inbox.look(handle.id_bytes)  # type: ignore[union-attr]
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    await handle.signal("add", 40)
    assert await handle.result(LIMIT) == sum(range(41)) + 41
    await looking
    assert seen >= 5


async def replaying(scheduler: Scheduler) -> Instance:
    """The process whose replay has a break."""
    while not scheduler.replaying:
        await asyncio.sleep(0)
    [instance] = scheduler.replaying
    return instance


async def test_a_process_that_is_ended_while_it_is_replayed_is_let_go(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REPLAY_EVENTS", 5)
    engine, handle, scheduler = await at_the_last_of(31, opened)

    async def drop() -> None:
        scheduler.release(await replaying(scheduler))

    dropping = asyncio.create_task(drop())
    await handle.signal("add", 30)
    await dropping
    assert await handle.result(LIMIT) == sum(range(31)) + 31
    assert hits(engine)[1] >= 2


async def test_a_process_that_was_dropped_while_it_is_replayed_is_replayed_no_further(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REPLAY_EVENTS", 5)
    engine, handle, scheduler = await at_the_last_of(31, opened)

    async def drop() -> None:
        scheduler.drop(await replaying(scheduler))
        scheduler.events.strayed()  # its row is freed, and claimed anew

    dropping = asyncio.create_task(drop())
    await handle.signal("add", 30)
    await dropping
    assert await handle.result(LIMIT) == sum(range(31)) + 31
    assert hits(engine)[1] >= 2


async def test_a_message_that_is_read_while_its_process_is_replayed_is_heard_at_the_end_of_that(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REPLAY_EVENTS", 5)
    _, handle, scheduler = await at_the_last_of(31, opened, listing)

    async def tell() -> None:
        instance = await replaying(scheduler)
        last = Message(bytes(16), handle.id_bytes, MessageType.SIGNAL, "add", b"30", number=31)
        scheduler.heard(instance, [last], wanted=True)

    telling = asyncio.create_task(tell())
    await handle.signal("add", 30)
    await telling
    assert await handle.result(LIMIT) == list(range(31))


def test_a_cache_below_nothing_is_refused() -> None:
    with pytest.raises(DefinitionError, match="cached=-1"):
        WorkerOptions(cached=-1)
