"""Children that go their own way, and those that are ended with their parent, also where the parent is tried again."""

from __future__ import annotations

import asyncio

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.engine import Engine
from perdure.errors import ProcessCancelled, ProcessFailed, StepError
from perdure.kernel.event import EventType
from perdure.kernel.retry import Retry
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT, Open, until
from tests.runtime.kin import done, fails_times, gated, gates, kid, sound, statuses


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    gates.clear()


@workflow
async def rescues(times: int, seen: list[str]) -> str:
    """Its step fails; then it starts a child that outlives it, and fails all the same, until the third time."""
    try:
        return await fails_times("flaky", times)
    except StepError:
        name = seen[min(done.count("flaky"), len(seen)) - 1]
        child = kid.child.options(on_parent_end="abandon")(name)
        await gated("after")
        if done.count("flaky") < 2:
            raise
        return await child


async def test_rule_21_a_retry_that_comes_to_an_abandoned_child_again_finds_it_still_running(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[rescues, kid])
    gates["after"].set()
    handle = await engine.start(rescues, 9, ["kid"])
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    await until(lambda: "kid" in done)
    await handle.retry(why="again")
    await until(lambda: done.count("after") == 2)
    gates["kid"].set()
    assert await handle.result(LIMIT) == "kid"
    assert await statuses(engine, "kid") == {"completed": 1}
    assert [event.type for event in await handle.history()].count(EventType.CHILD_STARTED) == 1
    await sound(engine)


@pytest.mark.parametrize("again", [False, True])
async def test_rule_21_a_retry_that_comes_to_an_abandoned_child_again_finds_its_answer(
    opened: Open, again: bool
) -> None:
    engine, _ = await opened(work=True, workflows=[rescues, kid])
    for gate in ("after", "kid"):
        gates[gate].set()
    handle = await engine.start(rescues, 9, ["kid"])
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    [child] = await engine.list(Search(kind="kid"))
    assert await engine.process(child.id).result(timeout=LIMIT) == "kid"
    if again:  # it is revived between the answer, which nobody awaits yet, and the place where the child is asked for
        gates["after"].clear()
    await handle.retry(why="again")
    if again:
        await until(lambda: done.count("after") == 2)
        await engine.process(handle.id).hold()
        gates["after"].set()
        await engine.process(handle.id).resume()
    assert await handle.result(LIMIT) == "kid"
    assert await statuses(engine, "kid") == {"completed": 1}
    await sound(engine)


async def test_rule_21_an_abandoned_child_with_other_arguments_is_another_child(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[rescues, kid])
    for gate in ("after", "one", "two"):
        gates[gate].set()
    handle = await engine.start(rescues, 9, ["one", "two"])
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    await handle.retry(why="again")
    assert await handle.result(LIMIT) == "two"
    assert await statuses(engine, "kid") == {"completed": 2}
    await sound(engine)


@step(retry=Retry.NONE)
async def shaky() -> None:
    """Fails twice, each time when it may."""
    done.append("shaky")
    count = done.count("shaky")
    await gates[f"shaky {count}"].wait()
    if count < 3:
        raise ValueError(count)


@workflow
async def listens(bond: str) -> str:
    """Its child is asked for after a step that fails, beside a letter that may come."""
    asyncio.ensure_future(receive("go", str))  # noqa: RUF006 (its process holds it)
    try:
        await shaky()
    except StepError:
        child = kid.child.options(on_parent_end=bond)("kid")  # type: ignore[arg-type]
        if done.count("shaky") == 1:
            await gated("after")
        else:
            await child
        raise
    return await kid.child.options(on_parent_end=bond)("kid")  # type: ignore[arg-type]


async def test_rule_21_the_answer_of_a_child_that_came_too_early_is_found_also_by_the_second_run_after_it(
    opened: Open,
) -> None:
    """A letter that came after the answer is kept: what was heard before that is not offered once more."""
    engine, _ = await opened(work=True, workflows=[listens, kid])
    for gate in ("after", "shaky 1"):
        gates[gate].set()
    handle = await engine.start(listens, "abandon")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    await handle.retry(why="again")
    await until(lambda: done.count("shaky") == 2)
    gates["kid"].set()
    await until_event(engine, handle.id, EventType.ANSWER_IGNORED)
    await handle.signal("go", "now")
    await until_event(engine, handle.id, EventType.MESSAGE_RECEIVED)
    gates["shaky 2"].set()
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    gates["shaky 3"].set()
    await handle.retry(why="again")
    assert await handle.result(LIMIT) == "kid"
    assert await statuses(engine, "kid") == {"completed": 1}
    await sound(engine)


async def until_event(engine: Engine, id: str, type: EventType) -> None:
    """Wait until the present run of a process has an event of that type."""
    async with asyncio.timeout(LIMIT):
        while type not in {event.type for event in await engine.process(id).history()}:
            await asyncio.sleep(0)


# -- ended with their parent -------------------------------------------------------------------------------------


@step(retry=Retry.NONE)
async def tidied(name: str) -> None:
    done.append(f"{name} tidied")


@workflow
async def tidy(name: str) -> None:
    """A child that cleans up when it is asked to end, and has a child of its own."""
    kid.child.options(on_parent_end="terminate")(f"{name}'s")
    try:
        await gated(name)
    finally:
        await tidied(name)


@workflow
async def leaves(bond: str) -> str:
    tidy.child.options(on_parent_end=bond)("kid")  # type: ignore[arg-type]
    return await gated("parent")


@pytest.mark.parametrize("end", ["returns", "terminated", "restarted"])
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_child_that_is_to_be_terminated_ends_with_its_parent_without_a_word_and_so_does_its_own(
    opened: Open, end: str, elsewhere: bool
) -> None:
    flows = [leaves, tidy, kid]
    engine, _ = await opened(work=True, workflows=[leaves] if elsewhere else flows)
    if elsewhere:
        await opened(work=True, workflows=[tidy, kid])
    handle = await engine.start(leaves, "terminate")
    await until(lambda: {"parent", "kid", "kid's"} <= set(done))
    if end == "returns":
        gates["parent"].set()
        assert await handle.result(LIMIT) == "parent"
    elif end == "terminated":
        await handle.terminate()
    else:
        await handle.restart()
    [child] = (await engine.list(Search(kind="tidy")))[-1:]
    with pytest.raises(ProcessCancelled, match=f"terminated by process {handle.id} because: its parent has ended"):
        await engine.process(child.id).result(timeout=LIMIT)
    [own] = (await engine.list(Search(kind="kid")))[-1:]
    with pytest.raises(ProcessCancelled, match=f"terminated by process {child.id}"):
        await engine.process(own.id).result(timeout=LIMIT)
    assert "kid tidied" not in done
    await sound(engine)


async def test_a_terminated_child_that_is_restarted_by_a_person_is_not_ended_by_the_old_order(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[leaves, tidy, kid])
    for gate in ("parent", "kid's"):
        gates[gate].set()
    handle = await engine.start(leaves, "terminate")
    assert await handle.result(LIMIT) == "parent"
    [child] = await engine.list(Search(kind="tidy"))
    with pytest.raises(ProcessCancelled):
        await engine.process(child.id).result(timeout=LIMIT)
    gates["kid"].set()
    await engine.process(child.id).restart()
    assert await engine.process(child.id).result(timeout=LIMIT) is None
    assert "kid tidied" in done
    await sound(engine)
