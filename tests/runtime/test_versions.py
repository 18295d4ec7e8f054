"""Living with change on both stores: which way a process takes when its code was changed while it was on its way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import Workflow, receive, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import ProcessBroken, ProcessCancelled
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.turns.patches import patched
from tests.runtime.conftest import LIMIT, Open, until, until_row

done: list[str] = []
Code = Workflow[Any, Any]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    done.clear()
    monkeypatch.setattr(limits, "HANDOVER_ALONE_SECONDS", 0.0)  # nobody waits for newer code here: see test_handover.py


@step(retry=Retry.NONE)
async def act(deed: str) -> str:
    done.append(deed)
    return deed


async def marks(engine: Engine, handle: Handle[Any]) -> list[str]:
    return [event.name for event in await engine.process(handle.id).history() if event.type is EventType.PATCHED]


async def half_way(engine: Engine, code: Code, *args: Any) -> Handle[Any]:
    """Start a process, and wait until its first step is recorded and it waits for a signal."""
    handle = await engine.start(code, *args)
    await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting == "signal go")
    return handle


def before_the_change() -> Code:
    @workflow(name="subscription")
    async def subscription() -> list[str]:
        ways = [await act("begin")]
        await receive("go")
        return [*ways, await act("old fee")]

    return subscription


def after_the_change() -> Code:
    @workflow(name="subscription")
    async def subscription() -> list[str]:
        new = patched("fee")
        ways = [await act("begin new" if new else "begin")]
        await receive("go")
        return [*ways, await act("new fee" if patched("fee") else "old fee")]

    return subscription


async def test_a_patch_is_taken_by_processes_that_begin_after_the_change_and_not_by_those_on_their_way(
    opened: Open,
) -> None:
    engine, _ = await opened(work=True, workflows=[before_the_change()])
    old = await half_way(engine, engine.registry.kinds["subscription"])
    await engine.close()
    engine, _ = await opened(work=True, workflows=[after_the_change()])
    new = await half_way(engine, engine.registry.kinds["subscription"])
    await engine.close()
    engine, _ = await opened(work=True, workflows=[after_the_change()])
    for handle in (old, new):
        await engine.process(handle.id).signal("go")
    assert await engine.process(old.id).result(timeout=LIMIT) == ["begin", "old fee"]
    assert await engine.process(new.id).result(timeout=LIMIT) == ["begin new", "new fee"]
    assert await marks(engine, old) == []
    assert await marks(engine, new) == ["fee"]


async def test_a_process_whose_attributes_were_edited_before_it_began_takes_the_new_way(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[after_the_change()])
    handle = await engine.start(engine.registry.kinds["subscription"].options(delay=3600))
    await handle.edit_attributes(stage="late")
    await handle.signal("go")
    assert await handle.result(timeout=LIMIT) == ["begin new", "new fee"]
    assert await marks(engine, handle) == ["fee"]


async def test_a_process_takes_a_patch_that_it_comes_to_later(opened: Open) -> None:
    @workflow(name="subscription")
    async def changed() -> list[str]:
        ways = [await act("begin")]
        await receive("go")
        return [*ways, await act("new fee" if patched("fee") else "old fee")]

    engine, _ = await opened(work=True, workflows=[before_the_change()])
    handle = await half_way(engine, engine.registry.kinds["subscription"])
    await engine.close()
    engine, _ = await opened(work=True, workflows=[changed])
    await engine.process(handle.id).signal("go")
    assert await engine.process(handle.id).result(timeout=LIMIT) == ["begin", "new fee"]
    assert await marks(engine, handle) == ["fee"]


async def test_a_patch_that_was_taken_may_leave_the_code_again(opened: Open) -> None:
    @workflow(name="subscription")
    async def cleaned() -> list[str]:
        ways = [await act("begin new")]
        await receive("go")
        return [*ways, await act("new fee")]

    engine, _ = await opened(work=True, workflows=[before_the_change()])
    old = await half_way(engine, engine.registry.kinds["subscription"])
    await engine.close()
    engine, _ = await opened(work=True, workflows=[after_the_change()])
    new = await half_way(engine, engine.registry.kinds["subscription"])
    await engine.close()
    engine, _ = await opened(work=True, workflows=[cleaned])
    for handle in (old, new):
        await engine.process(handle.id).signal("go")
    assert await engine.process(new.id).result(timeout=LIMIT) == ["begin new", "new fee"]
    with pytest.raises(ProcessBroken, match="the history recorded a result of step 'act'"):
        await engine.process(old.id).result(timeout=LIMIT)


async def test_tasks_that_run_side_by_side_take_the_same_way_at_every_replay(opened: Open) -> None:
    async def one(name: str) -> str:
        await act(f"{name} begins")
        new = patched("change")
        await receive(name)
        return await act(f"{name} new" if new and patched("change") else f"{name} old")

    @workflow(name="pair")
    async def pair() -> list[str]:
        return list(await asyncio.gather(one("a"), one("b"), one("c")))

    engine, _ = await opened(work=True, workflows=[pair])
    handle = await engine.start(pair)
    for name in "cab":
        await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting is not None)
        await engine.close()
        engine, _ = await opened(work=True, workflows=[pair])
        await engine.process(handle.id).signal(name)
    assert await engine.process(handle.id).result(timeout=LIMIT) == ["a new", "b new", "c new"]
    assert await marks(engine, handle) == ["change"]


async def test_what_the_history_does_not_hold_may_be_decided_again(opened: Open) -> None:
    gate = asyncio.Event()

    @step(retry=Retry.NONE)
    async def linger(deed: str) -> str:
        done.append(deed)
        await gate.wait()
        return deed

    def code(new: bool) -> Code:
        @workflow(name="lingers")
        async def lingers() -> str:
            return await linger("new" if new and patched("other") else "old")

        return lingers

    engine, _ = await opened(work=True, workflows=[code(False)])
    handle = await engine.start("lingers")
    await until(lambda: done == ["old"])
    await engine.close(0)
    gate.set()
    engine, _ = await opened(work=True, workflows=[code(True)])
    assert await engine.process(handle.id).result(timeout=LIMIT) == "new"
    assert await marks(engine, handle) == ["other"]


async def test_a_patch_survives_a_retry_of_what_came_after_it(opened: Open) -> None:
    failing = [True]

    @step(retry=Retry.NONE)
    async def falter() -> str:
        if failing:
            failing.clear()
            raise ConnectionError("away")
        return "done"

    @workflow(name="falters")
    async def falters() -> str:
        new = patched("better")
        await act("new" if new else "old")
        return await falter()

    engine, _ = await opened(work=True, workflows=[falters])
    handle = await engine.start(falters)
    await until_row(engine, handle.id, lambda row: row.status is Status.FAILED)
    await engine.process(handle.id).retry(why="the network is back")
    assert await engine.process(handle.id).result(timeout=LIMIT) == "done"
    assert done == ["new"] and await marks(engine, handle) == ["better"]


async def test_a_second_change_under_the_name_of_the_first_is_told(opened: Open) -> None:
    @workflow(name="subscription")
    async def late() -> list[str]:
        ways = [await act("begin")]
        await receive("go")
        new = patched("fee")
        await receive("go")
        return [*ways, str(new)]

    @workflow(name="subscription")
    async def early() -> list[str]:
        patched("nothing")
        ways = [await act("begin")]
        patched("fee")
        await receive("go")
        new = patched("fee")
        await receive("go")
        return [*ways, str(new)]

    engine, _ = await opened(work=True, workflows=[late])
    handle = await half_way(engine, late)
    await engine.process(handle.id).signal("go")
    await until_row(engine, handle.id, lambda row: row.owner is None and row.seen == 1)
    await engine.close()
    engine, _ = await opened(work=True, workflows=[early])
    await engine.process(handle.id).signal("go")
    with pytest.raises(
        ProcessBroken, match=r"patch 'fee' was taken in turn 2.*Give the second change a name of its own"
    ):
        await engine.process(handle.id).result(timeout=LIMIT)


async def test_rule_19_a_child_that_was_started_for_other_arguments_is_not_taken_for_what_the_code_asks_now(
    opened: Open,
) -> None:
    @workflow(name="subscription")
    async def queued() -> str:
        return await act.options(queue="slow")("as it was")

    @workflow(name="subscription")
    async def here() -> str:
        return await act("as it is now")

    engine, _ = await opened(work=True, workflows=[queued], queues=[])
    handle = await engine.start(queued)
    await until_row(engine, handle.id, lambda row: row.owner is None and row.events == 1)
    await engine.close()
    engine, _ = await opened(work=True, workflows=[here], queues=["slow"])
    with pytest.raises(ProcessBroken, match=r"a start of step 'act' at place 1 for other arguments.*as it is now"):
        await engine.process(handle.id).result(timeout=LIMIT)


@pytest.mark.parametrize("lost", ["child", "task"])
async def test_rule_19_a_child_under_way_is_not_forgotten_by_code_that_does_not_ask_for_it(
    opened: Open, lost: str
) -> None:
    @workflow
    async def parcel() -> str:
        return await receive("delivered", str)

    @workflow(name="subscription")
    async def unaware() -> str:
        return await receive("go", str)

    @workflow(name="subscription")
    async def aware() -> str:
        if patched("gift"):
            sent = parcel.child() if lost == "child" else act.options(queue="nobody")("gift")
            await receive("go")
            return await sent
        return await receive("go", str)

    engine, _ = await opened(work=True, workflows=[aware, parcel])
    handle = await engine.start(aware)
    await until_row(engine, handle.id, lambda row: row.owner is None and row.events == 2)
    await engine.close()
    engine, _ = await opened(work=True, workflows=[unaware, parcel])
    await engine.process(handle.id).signal("go", "on")
    with pytest.raises(ProcessBroken, match=r"a start of step '(parcel|act)' at place 1, but the code asked for"):
        await engine.process(handle.id).result(timeout=LIMIT)


@step(retry=Retry.NONE)
async def give_back(deed: str) -> None:
    done.append(f"{deed} given back")


@step(retry=Retry.NONE, undo=give_back)
async def book(deed: str) -> None:
    done.append(deed)
    await asyncio.Event().wait()


async def test_rule_19_what_another_code_owes_to_undo_is_not_forgotten_by_code_that_does_not_know_of_it(
    opened: Open,
) -> None:
    @workflow(name="subscription")
    async def unaware() -> None:
        await receive("go")

    @workflow(name="subscription")
    async def aware() -> None:
        if patched("seat"):
            await book("seat")
        await receive("go")

    engine, _ = await opened(work=True, workflows=[aware])
    handle = await engine.start(aware)
    await until(lambda: bool(done))
    await engine.close(0)
    engine, _ = await opened(work=True, workflows=[unaware])
    await engine.process(handle.id).cancel()
    with pytest.raises(ProcessBroken, match="that 'give_back' is owed for step book:1, but the code asked for no such"):
        await engine.process(handle.id).result(timeout=LIMIT)
    await engine.close()
    engine, _ = await opened(work=True, workflows=[aware])
    await engine.process(handle.id).retry()
    with pytest.raises(ProcessCancelled, match="compensated: book:1"):
        await engine.process(handle.id).result(timeout=LIMIT)
    assert done[0] == "seat" and done[-1] == "seat given back"


# -- versions ---------------------------------------------------------------------------------------------------------


def versions() -> tuple[Code, Code]:
    @workflow(name="order", version="1")
    async def order_1() -> str:
        await receive("go")
        return await act("the first way")

    @workflow(name="order", version="2")
    async def order_2() -> str:
        await receive("go")
        return await act("the second way")

    return order_1, order_2


async def test_one_worker_hosts_two_versions_and_each_process_stays_with_its_own(opened: Open) -> None:
    order_1, order_2 = versions()
    engine, _ = await opened(work=True, workflows=[order_2, order_1])
    newest = await engine.start("order")
    old = await engine.start(order_1)
    for handle in (newest, old):
        await until_row(engine, handle.id, lambda row: row.owner is None)
    await engine.close()
    engine, _ = await opened(work=True, workflows=[order_1, order_2])
    for handle in (newest, old):
        await engine.process(handle.id).signal("go")
    assert await engine.process(newest.id).result(timeout=LIMIT) == "the second way"
    assert await engine.process(old.id).result(timeout=LIMIT) == "the first way"
    assert [(await engine.row(handle.id)).code for handle in (newest, old)] == ["2", "1"]


async def test_a_process_of_a_version_that_nobody_hosts_is_left_alone_until_somebody_does(opened: Open) -> None:
    order_1, order_2 = versions()
    engine, _ = await opened(work=True, workflows=[order_1])
    old = await engine.start(order_1)
    await until_row(engine, old.id, lambda row: row.owner is None)
    await engine.close()
    engine, _ = await opened(work=True, workflows=[order_2])
    await engine.process(old.id).signal("go")
    new = await engine.start("order")
    await engine.process(new.id).signal("go")
    assert await engine.process(new.id).result(timeout=LIMIT) == "the second way"
    waiting = await engine.row(old.id)
    assert (waiting.owner, waiting.status, waiting.seen) == (None, Status.RUNNING, 0)
    await engine.close()
    engine, _ = await opened(work=True, workflows=[order_1, order_2])
    assert await engine.process(old.id).result(timeout=LIMIT) == "the first way"
