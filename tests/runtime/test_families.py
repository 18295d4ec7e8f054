"""Children as asyncio has them: cancelled, timed out, grouped, shared, given as arguments."""

from __future__ import annotations

import asyncio

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import process_id, receive, tell, workflow
from perdure.errors import ProcessCancelled, ProcessFailed, StepError
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT, Open, until
from tests.runtime.kin import done, failing_kid, gated, gates, kid, sound, statuses


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    gates.clear()


@workflow
async def changes_its_mind() -> str:
    child = asyncio.ensure_future(kid.child("kid"))
    child.cancel()
    child.cancel()
    try:
        await child
    except asyncio.CancelledError:
        return "never mind"
    return "got it"


async def test_a_child_cancelled_in_the_turn_that_asks_for_it_is_never_started(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[changes_its_mind, kid])
    assert await (await engine.start(changes_its_mind)).result(LIMIT) == "never mind"
    assert await statuses(engine, "kid") == {}


@workflow
async def cancels_twice() -> str:
    child = asyncio.ensure_future(kid.child("kid"))
    await gated("go")
    child.cancel()
    child.cancel()
    await asyncio.wait([child])
    return "cancelled" if child.cancelled() else "not"


async def test_a_child_cancelled_twice_is_asked_to_end_once(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[cancels_twice, kid])
    handle = await engine.start(cancels_twice)
    await until(lambda: set(done) == {"kid", "go"})
    gates["go"].set()
    assert await handle.result(LIMIT) == "cancelled"
    [child] = await engine.list(Search(kind="kid"))
    assert (await engine.row(child.id)).inbox == 1
    await sound(engine)


@workflow
async def gathers_with_errors() -> list[str]:
    found = await asyncio.gather(kid.child("good"), failing_kid.child("bad"), return_exceptions=True)
    return [one if isinstance(one, str) else type(one).__name__ for one in found]


async def test_a_failing_child_is_one_of_the_answers_if_the_code_says_so(opened: Open) -> None:
    gates["good"].set()
    engine, _ = await opened(work=True, workflows=[gathers_with_errors, kid, failing_kid])
    assert await (await engine.start(gathers_with_errors)).result(LIMIT) == ["good", "ProcessFailed"]


@workflow
async def groups() -> str:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(kid.child("slow"))
            group.create_task(failing_kid.child("bad"))
    except ExceptionGroup as errors:
        return ", ".join(type(one).__name__ for one in errors.exceptions)
    return "never"


async def test_a_group_waits_for_the_end_of_the_siblings_of_a_failed_child(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[groups, kid, failing_kid])
    assert await (await engine.start(groups)).result(LIMIT) == "ProcessFailed"
    assert await statuses(engine, "kid") == {"cancelled": 1}, "it had ended before its parent went on"
    await sound(engine)


@workflow
async def has_no_time() -> str:
    try:
        async with asyncio.timeout(0.05):
            await kid.child("slow")
    except TimeoutError:
        return "too slow"
    return "never"


async def test_a_child_that_takes_too_long_is_asked_to_end_before_its_parent_goes_on(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[has_no_time, kid])
    assert await (await engine.start(has_no_time)).result(LIMIT) == "too slow"
    assert await statuses(engine, "kid") == {"cancelled": 1}


@workflow
async def shares() -> list[str]:
    child = asyncio.ensure_future(kid.child("shared"))

    async def wait() -> str:
        return await child

    return list(await asyncio.gather(wait(), asyncio.create_task(wait()), child))


async def test_a_child_awaited_in_several_places_is_one_child(opened: Open) -> None:
    gates["shared"].set()
    engine, _ = await opened(work=True, workflows=[shares, kid])
    assert await (await engine.start(shares)).result(LIMIT) == ["shared"] * 3
    assert await statuses(engine, "kid") == {"completed": 1}


@workflow
async def chains() -> str:
    return await kid.child(kid.child(gated("one")))  # type: ignore[arg-type]


async def test_a_child_may_be_given_the_promise_of_a_step_or_of_another_child(opened: Open) -> None:
    gates["one"].set()
    engine, _ = await opened(work=True, workflows=[chains, kid])
    assert await (await engine.start(chains)).result(LIMIT) == "one"
    assert await statuses(engine, "kid") == {"completed": 2}


@workflow
async def tells_itself() -> list[int]:
    tell(process_id(), "number", 1)
    first = await receive("number", int)
    tell(process_id(), "number", 2)
    return [first, await receive("number", int)]


async def test_a_process_may_tell_itself_something(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[tells_itself])
    assert await (await engine.start(tells_itself)).result(LIMIT) == [1, 2]


@step(queue="slow", total=0.05)
async def never_served() -> str:
    return "served"


@workflow
async def asks_in_vain() -> str:
    try:
        return await never_served()
    except StepError as error:
        return f"{error.step}: {error.type}"


async def test_a_task_over_its_total_time_fails_in_its_parent_whether_served_or_not(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[asks_in_vain], queues=[])
    assert await (await engine.start(asks_in_vain)).result(LIMIT) == "never_served: DeadlineExceeded"


@workflow
async def dies_of_a_cancel() -> str:
    return await kid.child("kid")


async def test_a_child_cancelled_by_a_person_ends_the_wait_of_its_parent(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[dies_of_a_cancel, kid])
    handle = await engine.start(dies_of_a_cancel)
    await until(lambda: "kid" in done)
    [child] = await engine.list(Search(kind="kid"))
    await engine.process(child.id).cancel(why="test")
    with pytest.raises((ProcessFailed, ProcessCancelled)):
        await handle.result(LIMIT)
