"""Every command at every status on both stores, and the wish to cancel that has a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import IllegalMove, ProcessCancelled, ProcessNotFound
from perdure.kernel.command import ALLOWED, Verb
from perdure.kernel.event import EventType
from perdure.kernel.message import SendVerdict
from perdure.kernel.process import Status
from perdure.testing.faults import Gate
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.errand import FLOWS, done, errand, failing, forget, gates, sound, stubborn, waiting


@pytest.fixture(autouse=True)
def _fresh() -> None:
    forget()


# -- every verb at every status --------------------------------------------------------------------------------


async def bring_to(engine: Engine, status: Status, key: str) -> Handle[Any]:
    handle = await waiting(engine, key)
    if status is Status.HELD:
        await handle.hold()
    elif status is Status.CANCELLED:
        await handle.cancel()
    elif status is Status.BROKEN:
        await handle.set_result("ghost:1", 1)
    elif status is not Status.RUNNING:
        await handle.signal("go", "on")
    await until_row(engine, handle.id, lambda row: row.status is status and row.owner is None)
    return handle


ORDERS: dict[Verb, Callable[[Handle[Any]], Awaitable[Any]]] = {
    Verb.HOLD: lambda handle: handle.hold(who="anna"),
    Verb.RESUME: lambda handle: handle.resume(who="anna"),
    Verb.RETRY: lambda handle: handle.retry(who="anna"),
    Verb.RESTART: lambda handle: handle.restart(who="anna"),
    Verb.RESTART_FROM: lambda handle: handle.restart_from("act:1", who="anna"),
    Verb.SET_RESULT: lambda handle: handle.set_result("act:2", "by hand", who="anna"),
    Verb.SKIP: lambda handle: handle.skip("act:2", who="anna"),
    Verb.CANCEL: lambda handle: handle.cancel(deadline=60, who="anna"),
    Verb.TERMINATE: lambda handle: handle.terminate(who="anna"),
    Verb.FAIL: lambda handle: handle.fail(who="anna"),
    Verb.REMOVE: lambda handle: handle.remove(who="anna"),
    Verb.RELEASE_KEY: lambda handle: handle.release_key(who="anna"),
    Verb.MOVE: lambda handle: handle.move("2", force=True, who="anna"),
    Verb.SET_PRIORITY: lambda handle: handle.set_priority(0, who="anna"),
    Verb.SET_DEADLINE: lambda handle: handle.set_deadline(60, who="anna"),
}


@pytest.mark.parametrize("status", Status)
async def test_every_verb_at_every_status_is_carried_out_or_refused_and_no_law_is_broken(
    opened: Open, status: Status
) -> None:
    worker, _ = await opened(work=True, workflows=FLOWS)
    if status is Status.FAILED:
        failing.add("last")
    handles = {verb: await bring_to(worker, status, verb.name) for verb in Verb}
    await worker.close(0)
    client, store = await opened()
    for verb, old in handles.items():
        handle = client.handle_of(await client.row(old.id))
        fits = status in ALLOWED[verb] and not (status is Status.COMPLETED and verb is Verb.SET_RESULT)
        if verb is Verb.CANCEL and not fits:
            assert await handle.cancel(deadline=60) is SendVerdict.FINISHED
        elif fits:
            await ORDERS[verb](handle)
        else:
            with pytest.raises(IllegalMove, match=f"a process that is {status}"):
                await ORDERS[verb](handle)
            assert await sound(client, store, handle) is status
        if verb is Verb.REMOVE and fits:
            with pytest.raises(ProcessNotFound):
                await client.row(handle.id)
        else:
            await sound(client, store, handle)


@pytest.mark.parametrize("verb", Verb)
async def test_every_verb_at_a_process_in_hand_is_carried_out_or_refused_and_it_goes_on(
    opened: Open, verb: Verb
) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await waiting(engine)
    gates["last"] = asyncio.Event()
    await handle.signal("go", "on")
    await until(lambda: "last" in done)
    if Status.RUNNING in ALLOWED[verb]:
        await ORDERS[verb](handle)
    else:
        with pytest.raises(IllegalMove, match=r"goes on by itself|end it first|see its state"):
            await ORDERS[verb](handle)
    status = await sound(engine, store, handle)
    comes_to = {Verb.HOLD: Status.HELD, Verb.TERMINATE: Status.CANCELLED, Verb.FAIL: Status.FAILED}
    assert status is comes_to.get(verb, status)
    gates["last"].set()
    if verb in (Verb.RESTART, Verb.RESTART_FROM):
        assert (await handle.result(LIMIT)).endswith(", on, last 2")
    await sound(engine, store, handle)


# -- cancelling with a deadline --------------------------------------------------------------------------------


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_who_does_not_end_in_time_is_terminated_in_the_name_of_who_asked(opened: Open, elsewhere: bool) -> None:
    worker, _ = await opened(work=True, workflows=FLOWS)
    client = (await opened())[0] if elsewhere else worker
    handle = await worker.start(stubborn)
    await until_row(worker, handle.id, lambda row: row.owner is None)
    mine = client.handle_of(await client.row(handle.id))
    assert await mine.cancel(deadline=2.0, who="anna", why="too late") is SendVerdict.DELIVERED
    with pytest.raises(ProcessCancelled, match="terminated, after it was asked to cancel, by anna because: too late"):
        await mine.result(LIMIT)
    assert done == ["refusal"]


async def test_who_ends_in_time_is_not_touched(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await waiting(engine)
    await handle.cancel(deadline=0.5)
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)
    assert (await handle.history())[-1].type is EventType.CANCELLED


async def test_a_deadline_to_cancel_outlives_who_set_it_and_holds_for_a_held_process(opened: Open) -> None:
    client, store = await opened(workflows=FLOWS)
    handle = await client.start(errand)
    await handle.hold()
    await handle.cancel(deadline=0.1, who="anna")
    await client.close(0)
    worker, store = await opened(work=True, workflows=FLOWS)
    held = worker.handle_of(await worker.row(handle.id))
    with pytest.raises(ProcessCancelled, match="by anna"):
        await held.result(LIMIT)
    assert await sound(worker, store, held) is Status.CANCELLED


async def test_an_owner_that_does_not_listen_loses_the_process_so_that_its_deadline_holds(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.limits.OWNER_HEARS_SECONDS", 0.1)
    worker, deaf = await opened(work=True, workflows=FLOWS)
    client, _ = await opened()
    gates["first"] = asyncio.Event()
    handle = client.handle_of(await client.row((await worker.start(errand)).id))
    await until(lambda: done)
    still = deaf.before = Gate("messages")
    await handle.cancel(deadline=60)
    row = await client.row(handle.id)
    assert row.deadline is not None and row.token > 0
    assert EventType.DEADLINE_SET in [event.type for event in await handle.history()]
    still.open.set()
