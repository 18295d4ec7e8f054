"""Children: started in their parent's commit, awaited by message, asked to end before it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.errors import ProcessCancelled, ProcessFailed
from perdure.kernel.policy import Retry
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT, Open, until

done: list[Any] = []
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    gates.clear()


@step(retry=Retry.NONE)
async def double(n: int) -> int:
    done.append(n)
    return 2 * n


@workflow
async def doubled(n: int) -> int:
    return await double(n)


@workflow
async def sums(n: int) -> int:
    return sum(await asyncio.gather(*(doubled.child(one) for one in range(n))))


async def test_ipf61_a_parent_gets_the_typed_results_of_its_children(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[sums, doubled])
    handle = await engine.start(sums, 5)
    assert await handle.result(LIMIT) == 20
    types = [event.type.name for event in await engine.history(handle.id)]
    assert sorted(types) == sorted(["CHILD_STARTED"] * 5 + ["STEP_COMPLETED"] * 5 + ["COMPLETED"])
    assert sorted(done) == [0, 1, 2, 3, 4]


@step(retry=Retry.NONE)
async def fails() -> None:
    raise ValueError("no such order")


@workflow
async def failing() -> None:
    await fails()


@workflow
async def catches() -> str:
    try:
        await failing.child()
    except ProcessFailed as error:
        return f"{error.type}: {error.detail[:40]}"
    return "never"


async def test_ipf59_a_child_s_failure_is_an_error_that_its_parent_may_catch(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[catches, failing])
    assert (await (await engine.start(catches)).result(LIMIT)).startswith("StepError: step 'fails' failed")


@step(retry=Retry.NONE)
async def gated(name: str) -> str:
    done.append(name)
    await gates[name].wait()
    return name


@workflow
async def tidy(name: str) -> str:
    try:
        return await gated(name)
    except asyncio.CancelledError:
        await double(7)
        done.append(f"{name} tidied")
        raise


@workflow
async def guards(name: str) -> str:
    try:
        return await tidy.child(name)
    except asyncio.CancelledError:
        done.append("parent tidied")
        raise


async def test_a_cancel_goes_through_the_tree_leaves_first(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[guards, tidy])
    handle = await engine.start(guards, "leaf")
    await until(lambda: "leaf" in done)
    await handle.cancel(why="test")
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)
    assert done == ["leaf", 7, "leaf tidied", "parent tidied"]


@workflow
async def leaves(bond: str) -> str:
    child = tidy.child.options(on_parent_end=bond)("left")  # type: ignore[arg-type]
    await double(1)
    assert not child.done()  # type: ignore[attr-defined]
    return "gone"


@pytest.mark.parametrize("bond", ["cancel", "abandon"])
async def test_what_becomes_of_a_child_at_its_parent_s_end_is_said_when_it_is_asked_for(opened: Open, bond: str) -> None:
    engine, _ = await opened(work=True, workflows=[leaves, tidy])
    assert await (await engine.start(leaves, bond)).result(LIMIT) == "gone"
    [child] = await engine.list(Search(kind="tidy"))
    if bond == "abandon":
        await until(lambda: "left" in done)
        gates["left"].set()
        assert await engine.result(child.id, timeout=LIMIT) == "left"
    else:
        with pytest.raises(ProcessCancelled):
            await engine.result(child.id, timeout=LIMIT)


@step(queue="bank")
async def charge(cents: int) -> int:
    done.append(cents)
    return cents + 1


@workflow
async def pays(cents: int) -> int:
    return await charge(cents) + await double(1)


async def test_ipf53_a_queued_step_runs_as_a_task_of_its_queue(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[pays], queues=["bank"])
    assert await (await engine.start(pays, 12)).result(LIMIT) == 15
    [task] = await engine.list(Search(kind="@bank"))
    assert (task.status, task.result) == ("completed", 13)
