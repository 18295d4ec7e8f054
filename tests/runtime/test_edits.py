"""Editing of the input on both stores: a process begins with other arguments, or begins again with them."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.client.handle import Handle
from perdure.clock import SECOND
from perdure.engine import Engine
from perdure.errors import IllegalMove, InvalidInput, PayloadError, ProcessCancelled, ProcessFailed
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.store.base import Search
from tests.machines.account import Account
from tests.runtime.conftest import LIMIT, Open, until_row
from tests.runtime.errand import sound

charged: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_charged() -> None:
    charged.clear()


@step(retry=Retry.NONE)
async def charge(order: str, cents: int) -> str:
    charged.append(f"{order} {cents}")
    if cents < 0:
        raise ValueError("less than nothing")
    return f"{order}: {cents}"


@workflow
async def sale(order: str, cents: int = 100) -> str:
    paid = await charge(order, cents)
    return paid + await receive("go", str)


@step(queue="tills")
async def queued(order: str) -> str:
    return order


@workflow
async def patient(order: str) -> str:
    return await queued(order)


FLOWS = [sale, patient]


async def paid(engine: Engine, *args: Any) -> Handle[Any]:
    handle = await engine.start(sale, *args)
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal go" and row.owner is None)
    return handle


async def test_one_that_has_not_begun_begins_with_the_new_input(opened: Open) -> None:
    client, store = await opened(workflows=FLOWS)
    handle = await client.start(sale.options(key="k"), "A-1", 5)
    await handle.edit_input(["A-2"], {"cents": 7}, who="anna", why="a slip of the pen")
    await handle.edit_input(["A-2", 8])
    await handle.signal("go", "!")
    assert await sound(client, store, handle) is Status.RUNNING
    await opened(work=True, workflows=FLOWS)
    assert await handle.result(LIMIT) == "A-2: 8!"
    assert charged == ["A-2 8"]
    first, *_ = await handle.history(run=2)
    assert first.type is EventType.RUN_OPENED
    assert all(text in (first.payload or b"") for text in (b"anna", b"a slip of the pen", b"begun with another input"))
    again = await client.start(sale.options(key="k"), "A-1", 5)  # the start is the one that it was
    assert (again.id, again.created) == (handle.id, False)


async def test_a_delayed_one_keeps_its_time_and_its_deadline(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(sale.options(delay=3600, deadline=7200), "A-1", 5)
    before = await engine.row(handle.id)
    await handle.edit_input(["A-2"])
    after = await engine.row(handle.id)
    assert (after.due_at, after.deadline, after.owner) == (before.due_at, before.deadline, None)
    assert after.due_at is not None and after.due_at > await store.now() + 3000 * SECOND
    await handle.cancel()
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)


async def test_a_wish_to_cancel_that_waits_is_heard_all_the_same(opened: Open) -> None:
    client, _ = await opened(workflows=FLOWS)
    handle = await client.start(sale, "A-1", 5)
    await handle.cancel()
    await handle.edit_input(["A-2"])
    await opened(work=True, workflows=FLOWS)
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)


async def test_one_that_is_held_before_it_begins_stays_held(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(sale.options(delay=3600), "A-1", 5)
    await handle.hold(why="the price is wrong")
    await handle.edit_input(["A-1", 6])
    assert await sound(engine, store, handle) is Status.HELD
    assert "the price is wrong" in (await handle.status()).waiting
    await handle.resume()
    await handle.signal("go", "!")
    assert await handle.result(LIMIT) == "A-1: 6!"


async def test_one_that_has_begun_is_edited_only_together_with_a_restart(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await paid(engine, "A-1", 5)
    with pytest.raises(IllegalMove, match="together with a restart"):
        await handle.edit_input(["A-1", 6])
    assert charged == ["A-1 5"]
    await handle.edit_input(["A-1", 6], restart=True)
    await handle.signal("go", "!")
    assert await handle.result(LIMIT) == "A-1: 6!"
    await sound(engine, store, handle)
    await handle.restart()  # and from then on it is the input
    assert await handle.result(LIMIT) == "A-1: 6!"
    fork = await handle.fork()
    assert await fork.result(LIMIT) == "A-1: 6!"
    assert charged == ["A-1 5", "A-1 6", "A-1 6"]


async def test_one_that_has_failed_for_its_input_is_put_right_and_one_that_was_ended_does_not_rise_by_itself(
    opened: Open,
) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(sale.options(delay=3600), "A-1", 5)
    await handle.terminate()
    with pytest.raises(IllegalMove, match="together with a restart"):
        await handle.edit_input(["A-1", 6])
    await handle.edit_input(["A-1", -1], restart=True)
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    await handle.edit_input(["A-1", 7], restart=True)
    await handle.signal("go", "!")
    assert await handle.result(LIMIT) == "A-1: 7!"


async def test_what_does_not_fit_is_refused_at_the_door(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await engine.start(sale.options(delay=3600), "A-1", 5)
    for args, kwargs, error in (
        ([], None, InvalidInput),
        (["A-1", 6, 7], None, InvalidInput),
        (["A-1"], {"cent": 6}, InvalidInput),
        (["A-1", "six"], None, PayloadError),
        ("A-1", None, InvalidInput),
        (["A-1"], ["cents"], InvalidInput),
    ):
        with pytest.raises(error):
            await handle.edit_input(args, kwargs)  # type: ignore[arg-type]
    assert (await engine.row(handle.id)).run == 1
    await (await engine.start(patient, "A-2")).result(LIMIT)
    [task] = await engine.list(Search(kind="@tills"))
    with pytest.raises(IllegalMove, match="queued step"):
        await engine.process(task.id).edit_input(["A-3"], restart=True)
    ann = await engine.start(Account.opened, "Ann")
    assert await ann.call(Account.deposit, 5) == 5
    with pytest.raises(IllegalMove, match="fields would be lost"):
        await ann.edit_input(["Bob"], restart=True)


async def test_without_the_code_the_arguments_are_taken_as_they_are(opened: Open) -> None:
    client, _ = await opened()
    worker, _ = await opened(workflows=FLOWS)
    handle = await worker.start(sale, "A-1", 5)
    await client.process(handle.id).edit_input([], {"order": "A-2", "cents": 9})
    await opened(work=True, workflows=FLOWS)
    await handle.signal("go", "!")
    assert await handle.result(LIMIT) == "A-2: 9!"
