"""Removal of one process, and release of its key: at once, on both stores, and whatever its worker still does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.authoring.workflow import workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import IllegalMove, ProcessCancelled, ProcessNotFound
from perdure.kernel.process import Status
from perdure.store.base import Search
from perdure.testing.faults import Gate, Outage
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.errand import FLOWS, done, errand, forget, gates, sound, waiting


@pytest.fixture(autouse=True)
def _fresh() -> None:
    forget()


@workflow
async def parent() -> str:
    """Waits for one child."""
    try:
        return await errand.child()
    except ProcessCancelled as error:
        return f"{type(error).__name__}: {error}"


READS: tuple[Callable[[Handle[Any]], Awaitable[Any]], ...] = (
    lambda handle: handle.status(),
    lambda handle: handle.history(),
    lambda handle: handle.result(0),
    lambda handle: handle.result(),
    lambda handle: handle.signal("go"),
    lambda handle: handle.call("ask"),
    lambda handle: handle.retry(),
    lambda handle: handle.remove(),
)


async def completed(engine: Engine, key: str | None = None) -> Handle[Any]:
    handle = await waiting(engine, key)
    await handle.signal("go", "on")
    await handle.result(LIMIT)
    return handle


async def child_of(engine: Engine, handle: Handle[Any]) -> Handle[Any]:
    """The one child of a process, once it waits."""
    async with asyncio.timeout(LIMIT):
        while True:
            found = await engine.store.search(Search(kind="errand"))
            if found and found[0].parent == handle.id_bytes and found[0].awaiting:
                return engine.handle_of(found[0])
            await asyncio.sleep(0.002)


async def test_whoever_asks_for_a_removed_process_hears_that_there_is_none(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await completed(engine, "A-1")
    await handle.remove(who="anna", why="it is private")
    for read in READS:
        with pytest.raises(ProcessNotFound, match="no process has the id"):
            await asyncio.wait_for(read(handle), LIMIT)
    with pytest.raises(ProcessNotFound):
        await engine.handle(errand, "A-1")
    assert await store.history(handle.id_bytes, 1) == []
    assert await store.messages([(handle.id_bytes, 0)]) == []
    again = await engine.start(errand.options(key="A-1"))
    assert again.created and again.id != handle.id


async def test_what_has_not_ended_is_removed_by_force_alone(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await waiting(engine)
    with pytest.raises(IllegalMove, match="cannot remove a process that is running: end it first, or force"):
        await handle.remove()
    assert await sound(engine, store, handle) is Status.RUNNING
    waits = asyncio.ensure_future(handle.result(LIMIT))
    await asyncio.sleep(0)
    await handle.remove(force=True, who="anna")
    with pytest.raises(ProcessCancelled, match="terminated by anna"):
        await waits
    with pytest.raises(ProcessNotFound):
        await handle.status()


async def test_a_parent_hears_of_a_child_that_was_removed_by_force(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[*FLOWS, parent])
    above = await engine.start(parent)
    below = await child_of(engine, above)
    await below.remove(force=True, who="anna")
    assert "terminated by anna" in await above.result(LIMIT)
    assert await sound(engine, store, above) is Status.COMPLETED
    await above.remove()


async def test_children_of_a_parent_that_was_removed_by_force_are_asked_to_end(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[*FLOWS, parent])
    above = await engine.start(parent)
    below = await child_of(engine, above)
    await above.remove(force=True)
    with pytest.raises(ProcessCancelled):
        await below.result(LIMIT)
    assert await sound(engine, store, below) is Status.CANCELLED  # the answer to a parent that is gone is lost, no more


async def test_a_worker_that_holds_it_lets_go_and_its_late_answers_bring_nothing_back(opened: Open) -> None:
    worker, store = await opened(work=True, workflows=FLOWS)
    client, _ = await opened()
    handle = await waiting(worker)
    gates["last"] = asyncio.Event()
    await handle.signal("go", "on")
    await until(lambda: "last" in done)
    await client.process(handle.id).remove(force=True)
    gates["last"].set()
    await until(lambda: worker.metrics()["held"] == 0)
    assert await store.history(handle.id_bytes, 1) == []
    with pytest.raises(ProcessNotFound):
        await client.row(handle.id)


async def test_a_removal_whose_answer_is_lost_is_done_once_and_answered(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle, other = await completed(engine), await completed(engine)
    away = Outage("commit", after=True).upon(store)
    away.away = True
    removing = asyncio.ensure_future(handle.remove())
    await until(lambda: away.failed)
    away.away = False
    await removing
    with pytest.raises(ProcessNotFound):
        await handle.status()
    assert await sound(engine, store, other) is Status.COMPLETED


async def test_a_restart_that_was_quicker_keeps_the_process(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    client, slow = await opened()
    handle = await waiting(engine)
    await handle.terminate()
    slow.before = gate = Gate("commit")
    removal = asyncio.ensure_future(client.process(handle.id).remove())
    await gate.reached.wait()
    await handle.restart()
    gate.open.set()
    with pytest.raises(IllegalMove, match="cannot remove a process that is running"):
        await removal
    assert await sound(engine, store, handle) is Status.RUNNING


@pytest.mark.parametrize("former", [0, 3])
async def test_one_that_ends_by_itself_while_it_is_removed_by_force_is_removed(opened: Open, former: int) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    client, slow = await opened()
    handle = await waiting(engine)
    for _ in range(former):
        await handle.restart()
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal go" and row.owner is None)
    slow.before = gate = Gate("commit")
    removal = asyncio.ensure_future(client.process(handle.id).remove(force=True))
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    await handle.signal("go", "on")
    await handle.result(LIMIT)
    gate.open.set()
    await removal
    for run in range(1, former + 2):
        assert await store.history(handle.id_bytes, run) == []
    with pytest.raises(ProcessNotFound):
        await handle.status()


async def test_a_released_key_begins_another_process_and_the_old_one_stays(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await completed(engine, "A-1")
    assert not (await engine.start(errand.options(key="A-1"))).created
    await handle.release_key(who="anna", why="again")
    again = await engine.start(errand.options(key="A-1"))
    assert again.created
    assert (await handle.status()).key is None
    assert await sound(engine, store, handle) is Status.COMPLETED
    assert b'"key":"A-1"' in ((await handle.history())[-1].payload or b"")
    await handle.restart()  # it has no key, and needs none
    await handle.signal("go", "on")
    await handle.result(LIMIT)
    with pytest.raises(IllegalMove, match="has none"):
        await handle.release_key()
    with pytest.raises(IllegalMove, match="cannot release the key of a process that is running"):
        await again.release_key()


@pytest.mark.parametrize("force", [False, True])
async def test_a_process_with_many_former_runs_is_removed_in_several_transactions(
    opened: Open, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    for place in ("perdure.limits.PRUNED_EVENTS", "perdure.store.sqlite.upkeep.EVENTS_PRUNED_AT_ONCE"):
        monkeypatch.setattr(place, 2)
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await waiting(engine)
    for _ in range(4):
        await handle.restart()
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal go" and row.owner is None)
    if not force:
        await handle.terminate()
    await handle.remove(force=force)
    assert sum(name == "prune" for name, _ in store.calls) > 2
    for run in range(1, 6):
        assert await store.history(handle.id_bytes, run) == []
    with pytest.raises(ProcessNotFound):
        await handle.status()
