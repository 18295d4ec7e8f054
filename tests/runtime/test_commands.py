"""Commands on both stores: what becomes of a process that people hold, restart and answer for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import IllegalMove, Permanent, ProcessBroken, ProcessCancelled, ProcessFailed, StepError
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.runtime.options import WorkerOptions
from tests.runtime.conftest import LIMIT, Open, until, until_row
from tests.runtime.errand import FLOWS, act, done, errand, failing, forget, gates, keys, sound, waiting


@pytest.fixture(autouse=True)
def _fresh() -> None:
    forget()


# -- holding ---------------------------------------------------------------------------------------------------


async def test_rule_22_a_held_process_runs_nothing_hears_later_and_goes_on_under_the_same_key(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    gates["first"] = asyncio.Event()
    handle = await engine.start(errand)
    await until(lambda: done)
    await handle.hold(who="anna", why="the bank calls")
    gates["first"].set()
    await handle.signal("go", "on")
    seen = await handle.status()
    assert (seen.status, seen.mover) == (Status.HELD, "person")
    assert "by anna because: the bank calls" in seen.waiting
    await handle.resume(who="bob")
    assert await handle.result(LIMIT) == "first 2, on, last 1"
    assert len(set(keys["first"])) == 1
    types = [event.type for event in await handle.history()]
    assert types[:2] == [EventType.HELD, EventType.RESUMED]


async def test_a_process_that_is_held_stays_so_when_its_worker_dies_and_goes_on_at_another(opened: Open) -> None:
    worker, _ = await opened(work=True, workflows=FLOWS)
    client, store = await opened()
    gates["first"] = asyncio.Event()
    handle = client.handle_of(await client.row((await worker.start(errand)).id))
    await until(lambda: done)
    await handle.hold()
    await worker.close(0)
    assert await sound(client, store, handle) is Status.HELD
    gates["first"].set()
    await opened(work=True, workflows=FLOWS)
    await handle.signal("go", "on")
    assert (await handle.status()).status is Status.HELD
    await handle.resume()
    assert await handle.result(LIMIT) == "first 2, on, last 1"


# -- restarting ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_restart_while_a_step_is_in_flight_refuses_its_late_answer_and_uses_new_keys(
    opened: Open, elsewhere: bool
) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    client = (await opened())[0] if elsewhere else engine
    handle = await waiting(engine)
    gates["last"] = asyncio.Event()
    await handle.signal("go", "on")
    await until(lambda: "last" in done)
    await client.process(handle.id).restart(who="anna", why="from the start")
    await until(lambda: done.count("last") == 2)
    assert "last stopped" in done
    gates["last"].set()
    assert await handle.result(LIMIT) == "first 2, on, last 2"
    assert len(set(keys["first"])) == len(set(keys["last"])) == 2
    old, new = await handle.history(run=1), await handle.history()
    assert [event.type for event in old] == [EventType.STEP_COMPLETED, EventType.MESSAGE_RECEIVED]
    assert new[0].type is EventType.RUN_OPENED and b"from the start" in (new[0].payload or b"")


async def test_a_cancelled_process_that_is_restarted_is_not_cancelled_by_its_old_wish(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    handle = await waiting(engine)
    await handle.cancel()
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)
    await handle.restart()
    await handle.signal("go", "after all")
    assert await handle.result(LIMIT) == "first 2, after all, last 1"
    await sound(engine, store, handle)
    await handle.restart()
    assert await handle.result(LIMIT) == "first 3, after all, last 2"


@workflow
async def beside() -> list[str | None]:
    before = await act("before")
    three = await asyncio.gather(act("a"), act("b"), act("c"))
    return [before, *three, await act("after")]


async def gathered(engine: Engine) -> Handle[Any]:
    """A process whose three steps ran beside each other and ended in the order a, b, c."""
    for deed in ("b", "c"):
        gates[deed] = asyncio.Event()
    handle = await engine.start(beside)
    for deed, count in (("b", 2), ("c", 3)):
        await until_row(engine, handle.id, lambda row, count=count: row.events >= count)
        gates[deed].set()
    return handle


async def test_a_restart_from_the_middle_of_a_gather_runs_that_step_and_what_followed_and_keeps_the_rest(
    opened: Open,
) -> None:
    engine, store = await opened(work=True, workflows=[beside])
    handle = await gathered(engine)
    assert await handle.result(LIMIT) == ["before 1", "a 1", "b 1", "c 1", "after 1"]
    place = next(e.place for e in await handle.history() if e.payload == b'"b 1"')
    await handle.restart_from(f"act:{place}", who="anna")
    assert await handle.result(LIMIT) == ["before 1", "a 1", "b 2", "c 1", "after 2"]
    assert {deed: len(set(tried)) for deed, tried in keys.items()} == {"before": 1, "a": 1, "b": 2, "c": 1, "after": 2}
    assert [e.payload for e in await handle.history(run=1) if e.type is EventType.STEP_COMPLETED][-1] == b'"after 1"'
    await sound(engine, store, handle)


async def test_a_step_that_failed_beside_the_chosen_one_has_fresh_attempts_under_its_old_key(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[beside])
    failing.add("c")
    handle = await gathered(engine)
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    failing.clear()
    place = next(e.place for e in await handle.history() if e.payload == b'"b 1"')
    await handle.restart_from(f"act:{place}")
    assert await handle.result(LIMIT) == ["before 1", "a 1", "b 2", "c 2", "after 1"]
    assert len(set(keys["c"])) == 1 and len(set(keys["b"])) == 2


@workflow
async def parent() -> str:
    first = await act("first")
    return f"{first}, {await errand.child()}"


async def test_a_restart_asks_children_to_end_and_starts_new_ones(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[parent, errand])
    handle = await engine.start(parent)
    (row,) = await children(engine, 1)
    await handle.restart_from("act")
    rows = await children(engine, 2)
    await until_row(engine, row, lambda child: child.status is Status.CANCELLED)
    other = next(one for one in rows if one != row)
    await engine.process(other).signal("go", "on")
    assert (await handle.result(LIMIT)).endswith(", on, last 1")


async def children(engine: Engine, count: int) -> list[str]:
    async with asyncio.timeout(LIMIT):
        while True:
            found = [view.id for view in await engine.list() if view.kind == "errand"]
            if len(found) == count:
                return found
            await asyncio.sleep(0)


# -- by hand ---------------------------------------------------------------------------------------------------


async def test_a_result_set_by_hand_ends_the_wait_for_a_step_in_flight(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=FLOWS)
    gates["last"] = asyncio.Event()
    handle = await waiting(engine)
    await handle.signal("go", "on")
    await until(lambda: "last" in done)
    await handle.set_result("act:2", "by hand", who="anna", why="she called the bank")
    assert await handle.result(LIMIT) == "first 1, on, by hand"
    events = await handle.history()
    assert [event.type for event in events[-3:]] == [
        EventType.SET_BY_HAND,
        EventType.STEP_COMPLETED,
        EventType.COMPLETED,
    ]
    assert await sound(engine, store, handle) is Status.COMPLETED


async def test_the_bare_name_of_a_step_that_began_a_moment_ago_is_enough_for_its_result(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS, options=WorkerOptions(lease_seconds=1.5, beat_seconds=0.1))
    gates["last"] = asyncio.Event()
    handle = await waiting(engine)
    await handle.signal("go", "on")
    await until(lambda: "last" in done)
    client, _ = await opened()  # another engine, as the command line is: it knows what stands in the row
    await client.process(handle.id).set_result("act", "by hand")
    assert await handle.result(LIMIT) == "first 1, on, by hand"


async def test_a_bare_name_that_nobody_in_hand_can_tell_of_is_refused_at_once_with_what_is_open(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    handle = await waiting(engine)
    await handle.hold()
    with pytest.raises(IllegalMove, match="nothing is known yet of a step 'ship'; name it with its place"):
        await handle.set_result("ship", 1)
    with pytest.raises(IllegalMove, match="step 'act' has its result"):
        await handle.set_result("act", 1)


async def test_a_failed_process_goes_on_when_its_step_is_skipped_and_says_so(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    failing.add("last")
    handle = await waiting(engine)
    await handle.signal("go", "on")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    await handle.skip("act:2", who="anna")
    assert await handle.result(LIMIT) == "first 1, on, None"
    assert EventType.SKIPPED in [event.type for event in await handle.history()]


@step(retry=Retry.NONE)
async def paid(amount: int) -> None:
    raise Permanent("the card is refused")


@step(queue="post")
async def posted(text: str) -> str:
    return f"posted {text}"


@workflow
async def written(text: str) -> str:
    return f"wrote {text}"


@workflow
async def either_way(amount: int) -> list[str]:
    """It writes in either case, but not the same."""
    try:
        await paid(amount)
    except StepError as error:
        told = [await posted("we are sorry"), await written("a reminder")]
        raise RuntimeError(f"{told}") from error
    return [await posted("thank you"), await written("a receipt")]


async def test_a_child_that_was_asked_for_on_another_way_does_not_answer_for_the_one_in_its_place(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[either_way, written], queues=["post"])
    handle = await engine.start(either_way, 5)
    with pytest.raises(ProcessFailed, match=r"posted we are sorry.*wrote a reminder"):
        await handle.result(LIMIT)
    await handle.skip("paid")
    assert await handle.result(LIMIT) == ["posted thank you", "wrote a receipt"]


async def test_a_result_of_the_wrong_type_breaks_the_process_and_a_restart_from_it_takes_it_back(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=FLOWS)
    gates["last"] = asyncio.Event()
    handle = await waiting(engine)
    await handle.signal("go", "on")
    await until(lambda: "last" in done)
    await handle.set_result("act:2", 17)
    with pytest.raises(ProcessBroken, match="cannot read it"):
        await handle.result(LIMIT)
    gates["last"].set()
    await handle.restart_from("act:2")
    assert await handle.result(LIMIT) == "first 1, on, last 2"
