"""Damaged rows under a real worker: no step is done again, neighbours go on, people see what is wrong and end it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import suppress
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.engine import Engine
from perdure.errors import IllegalMove, ProcessBroken, StoreError
from perdure.kernel import child
from perdure.kernel.claim import Claim
from perdure.kernel.event import EventType
from perdure.kernel.names import id_bytes
from perdure.kernel.process import FINAL, Status
from perdure.kernel.worker import WorkerRow
from perdure.loop import Loop
from perdure.runtime.options import WorkerOptions
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.store.damage import POSTGRES, SQLITE, named, statement

charged: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    charged.clear()


@step
async def charge(who: str) -> str:
    charged[who] += 1
    return who


@workflow(name="bill")
async def bill(name: str) -> str:
    first = await charge(f"{name}/1")
    await receive("go", str)
    return first + await charge(f"{name}/2")


@workflow(name="hears both")
async def hears_both() -> list[str]:
    await receive("begin")
    return [await receive("go", str), await receive("go", str)]


async def damage(url: str, id: str, table: str, damage: str) -> bool:
    """Write a bad value by hand; False if the database refuses it."""
    if url.startswith("sqlite"):
        raw = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        try:
            raw.execute("PRAGMA ignore_check_constraints = ON")
            return raw.execute(statement("", table, damage, ":row"), {"row": id_bytes(id)}).rowcount == 1
        except sqlite3.Error:
            return False
        finally:
            raw.close()
    outside = await asyncpg.connect(url)
    try:
        return (await outside.execute(statement("perdure.", table, damage, "$1"), UUID(id))).endswith(" 1")
    except asyncpg.PostgresError:
        return False
    finally:
        await outside.close()


async def half_way(engine: Engine, names: list[str]) -> dict[str, str]:
    """Start a process for each name, and let it come to where it waits: its first charge is recorded."""
    handles = {name: await engine.start(bill.options(key=name), name) for name in names}
    await until(lambda: len(charged) == len(names))
    for handle in handles.values():
        await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting is not None)
    return {name: handle.id for name, handle in handles.items()}


def claims(engine: Engine) -> Loop:
    """The loop of its worker that claims: while it is stopped, what waits stays in the worker's memory alone."""
    assert engine.worker is not None
    return engine.worker.claimer.loop


@pytest.mark.parametrize("table", ["process", "event", "message"])
@pytest.mark.parametrize("in_memory", [False, True], ids=["replayed", "in memory"])
async def test_no_bad_value_in_any_column_has_a_step_done_again_or_keeps_a_neighbour_waiting(
    opened: Open, store_url: str, table: str, in_memory: bool
) -> None:
    values = SQLITE if store_url.startswith("sqlite") else POSTGRES
    # Whoever has died twice with his worker runs alone: those are tried in tests/kill.
    names = [name for name in named(values, table) if not name.startswith(("deaths", "alone_deaths"))]
    engine, _ = await opened(work=True, workflows=[bill])
    ids = await half_way(engine, [*names, "healthy 1", "healthy 2"])
    for name in names:
        if table == "message":
            await engine.process(ids[name]).signal("go", "on")
    await (claims(engine).stop() if in_memory else engine.close())
    charged_before = dict(charged)

    client, _ = await opened()
    for name in names:
        if table != "message":
            await client.process(ids[name]).signal("go", "on")
        if not await damage(store_url, ids[name], table, name):
            del ids[name]
    if in_memory:
        worker = engine
        claims(engine).start()
    else:
        worker, _ = await opened(work=True, workflows=[bill])
    for name in ("healthy 1", "healthy 2"):
        await client.process(ids[name]).signal("go", "on")
        assert await client.process(ids[name]).result(timeout=LIMIT) == f"{name}/1{name}/2"

    assert {name: charged[name] for name in charged_before} == charged_before
    listed = {view.id for view in await client.list(Search(limit=1_000))}
    for name, id in ids.items():
        assert id in listed, name
        await seen_and_ended(client, id, name)
    assert charged.most_common(1)[0][1] == 1
    assert worker.telemetry.counters["broken"] > 0


async def seen_and_ended(client: Engine, id: str, name: str) -> None:
    """What can be read is shown, and a person can end it, unless the database refuses what stands in it for good."""
    view = await client.process(id).status()
    await client.process(id).history()
    if view.status not in FINAL:
        with suppress(StoreError):
            with suppress(IllegalMove):  # a worker has ended it meanwhile: a deadline of long ago, say
                await client.process(id).terminate(who="ann", why="it is damaged")
            assert (await client.process(id).status()).status in FINAL, name


async def test_a_signal_that_has_gone_from_an_inbox_is_noticed_before_another_is_received_in_its_place(
    opened: Open, store_url: str
) -> None:
    engine, _ = await opened(work=True, workflows=[hears_both])
    handle, whole = [await engine.start(hears_both) for _ in range(2)]
    for one in (handle, whole):
        await one.signal("go", "first")
        await one.signal("go", "second")
        await until_row(engine, one.id, lambda row: row.seen == 2 and row.owner is None)
    await engine.close()
    assert await damage(store_url, handle.id, "message", "missing: the first")
    engine, _ = await opened(work=True, workflows=[hears_both])
    for one in (handle, whole):
        await engine.process(one.id).signal("go", "third")
        await engine.process(one.id).signal("begin")
    assert await engine.process(whole.id).result(LIMIT) == ["first", "second"]
    with pytest.raises(ProcessBroken, match=r"\d signals and calls wait in its inbox, as its row counts, and \d of"):
        await engine.process(handle.id).result(LIMIT)
    assert [event.type for event in await engine.process(handle.id).history()].count(EventType.MESSAGE_RECEIVED) < 2


@pytest.mark.parametrize("table", ["event", "message"])
@pytest.mark.parametrize("place", ["first", "last"])
async def test_a_history_or_an_inbox_with_a_piece_missing_is_parked_with_both_sides_shown_and_never_replayed(
    opened: Open, store_url: str, table: str, place: str
) -> None:
    engine, _ = await opened(work=True, workflows=[bill])
    ids = await half_way(engine, ["a", "b"])
    await engine.close()
    client, _ = await opened()
    for id in ids.values():
        await client.process(id).signal("other", "1")
        await client.process(id).signal("go", "on")
    assert await damage(store_url, ids["a"], table, f"missing: the {place}")
    await opened(work=True, workflows=[bill])
    told = {
        "event": "its row counts 1 events in run 1, and its history has none of them",
        "message first": "messages 1 to 2 were not heard yet, and 1 of them are there: 2",
        "message last": "2 signals and calls wait in its inbox, as its row counts, and 1 of them are there",
    }["event" if table == "event" else f"message {place}"]
    with pytest.raises(ProcessBroken, match=told):
        await client.process(ids["a"]).result(timeout=LIMIT)
    assert await client.process(ids["b"]).result(timeout=LIMIT) == "b/1b/2"
    assert charged == {"a/1": 1, "b/1": 1, "b/2": 1}
    await client.process(ids["a"]).terminate(who="ann")
    assert (await client.process(ids["a"]).status()).status is Status.CANCELLED


async def test_a_history_that_holds_more_than_its_row_counts_is_parked_and_can_be_ended(
    opened: Open, store_url: str
) -> None:
    engine, _ = await opened(work=True, workflows=[bill])
    ids = await half_way(engine, ["parked", "ended"])
    await engine.close()
    client, _ = await opened()
    for id in ids.values():
        assert await damage(store_url, id, "process", "events: 0")
    await client.process(ids["ended"]).terminate(who="ann", why="its row is damaged")
    view = await client.process(ids["ended"]).status()
    assert view.status is Status.CANCELLED and view.error is not None and "its row is damaged" in view.error.message
    await client.process(ids["parked"]).signal("go", "on")
    await opened(work=True, workflows=[bill])
    await until_row(client, ids["parked"], lambda row: row.status is Status.BROKEN)


@pytest.mark.parametrize("damaged", ["events: 1", "seen: 2"])
async def test_a_row_that_counts_what_memory_does_not_have_is_parked_by_the_worker_that_has_it(
    opened: Open, store_url: str, damaged: str
) -> None:
    engine, _ = await opened(work=True, workflows=[hears_both])
    handle = await engine.start(hears_both)
    await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting is not None)
    assert await damage(store_url, handle.id, "process", damaged)
    await handle.signal("begin")
    with pytest.raises(ProcessBroken, match="is not whole"):
        await handle.result(LIMIT)
    assert engine.metrics()["cache_hits"] == 0


@pytest.mark.parametrize("in_memory", [True, False], ids=["in memory", "replayed"])
async def test_what_is_gone_before_the_last_event_parks_its_process_as_soon_as_the_history_is_read(
    opened: Open, store_url: str, in_memory: bool
) -> None:
    """A worker that has the process in memory has the whole history, and ends it with its exact value."""
    engine, _ = await opened(work=True, workflows=[hears_both], options=WorkerOptions(cached=9 if in_memory else 0))
    handle = await engine.start(hears_both)
    await handle.signal("begin")
    await handle.signal("go", "first")
    await until_row(engine, handle.id, lambda row: row.owner is None and row.events == 2)
    assert await damage(store_url, handle.id, "event", "missing: the first")
    await handle.signal("go", "second")
    if in_memory:
        assert await handle.result(LIMIT) == ["first", "second"]
    else:
        with pytest.raises(ProcessBroken, match="its row counts 2 events in run 1, and its history has 1 of them: 2"):
            await handle.result(LIMIT)


async def test_a_message_that_vanishes_under_a_running_process_parks_it_and_it_does_not_spin(
    opened: Open, store_url: str
) -> None:
    engine, _ = await opened(work=True, workflows=[bill])
    ids = await half_way(engine, ["a"])
    await engine.close()
    client, _ = await opened()
    await client.process(ids["a"]).signal("go", "on")
    gate, begun = asyncio.Event(), asyncio.Event()

    @step(name="charge")
    async def held(who: str) -> str:
        charged[who] += 1
        begun.set()
        await gate.wait()
        return who

    @workflow(name="bill")
    async def slow(name: str) -> str:
        first = await held(f"{name}/1")
        await receive("go", str)
        return first + await held(f"{name}/2")

    worker, _ = await opened(work=True, workflows=[slow])
    await asyncio.wait_for(begun.wait(), LIMIT)
    worker.worker.inbox.store = NothingNew(worker.store)  # type: ignore[assignment, union-attr]
    await client.process(ids["a"]).signal("late", "1")
    gate.set()
    with pytest.raises(ProcessBroken, match="2 messages were sent to it, and those after number 1 are not there"):
        await client.process(ids["a"]).result(timeout=LIMIT)


class NothingNew:
    """A store in which the messages of one process are gone by the time somebody looks for them."""

    def __init__(self, store: Any) -> None:
        self._store = store

    async def messages(self, *wants: Any, **more: Any) -> list[Any]:
        return []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@workflow(name="newsletter")
async def newsletter(what: str) -> str:
    return what


async def ordered_to_end(engine: Engine, id: str, sender: bytes | None) -> None:
    """Its parent has ended, and says so."""
    order = child.terminate(id_bytes(id), bytes(16))
    await engine.store.send([order if sender is None else replace(order, sender=sender)])


async def test_a_process_whose_order_to_end_does_not_say_by_whom_is_ended_all_the_same(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[bill])
    ids = await half_way(engine, ["a"])
    await ordered_to_end(engine, ids["a"], b"{")
    row = await until_row(engine, ids["a"], lambda row: row.final)
    assert row.status is Status.CANCELLED and b"who asked for it cannot be read" in (row.error or b"")


async def test_a_history_that_holds_more_than_its_row_counts_does_not_keep_a_child_from_the_end_of_its_parent(
    opened: Open, store_url: str
) -> None:
    engine, _ = await opened(work=True, workflows=[bill])
    ids = await half_way(engine, ["a"])
    assert await damage(store_url, ids["a"], "process", "events: 0")
    await ordered_to_end(engine, ids["a"], None)
    row = await until_row(engine, ids["a"], lambda row: row.final)
    assert row.status is Status.CANCELLED and b"its parent has ended" in (row.error or b"")


async def test_a_debounced_start_that_cannot_begin_is_parked_and_not_claimed_for_ever(
    opened: Open, store_url: str
) -> None:
    client, _ = await opened(workflows=[newsletter])
    options = newsletter.options(key="user-7", debounce=3600)
    await client.start(options, "first")
    handle = await client.start(options, "second")
    assert await damage(store_url, handle.id, "process", "events: 0")
    assert await damage(store_url, handle.id, "process", "due_at: created_at")
    await opened(work=True, workflows=[newsletter])
    with pytest.raises(ProcessBroken, match="number"):
        await handle.result(LIMIT)


async def test_a_claim_from_a_dead_worker_frees_a_process_whose_history_holds_more_than_its_row_counts(
    opened: Open, store_url: str
) -> None:
    first, _ = await opened(work=True, workflows=[bill])
    id = (await half_way(first, ["a"]))["a"]
    await first.close()
    engine, _ = await opened(work=True, workflows=[bill])
    worker = engine.worker
    assert worker is not None
    await worker.claimer.loop.stop()
    await worker.supervisor.stop()
    row, dead = await engine.row(id), bytes(15) + b"d"
    await engine.store.enlist(WorkerRow(dead, "dead", worker.registry.offer(0).encode()), 1_000_000)
    taken = await engine.store.claim(Claim(dead, ((row.kind, row.code),), 1, 1, only=row.id))
    assert [one.process.id for one in taken.claimed] == [row.id]
    await engine.store.retire(dead, None, died=True)
    assert await damage(store_url, id, "process", "events: 0")
    await worker.claimer.look()
    freed = await engine.row(id)
    assert (freed.owner, freed.events, freed.token) == (None, 0, row.token + 3), "claimed, claimed again, and freed"
    assert engine.metrics()["store_errors"] == 0
