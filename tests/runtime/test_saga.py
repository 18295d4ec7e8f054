"""Sagas on both stores: what is undone, when, and what is told of it, whatever happens in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import receive, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import IllegalMove, ProcessBroken, ProcessCancelled, ProcessError, ProcessFailed, StepError
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.testing.faults import Gate
from perdure.turns.saga import saga
from tests.runtime.conftest import LIMIT, Open, until, until_row

done: list[str] = []
keys: dict[str, list[str]] = {}
gates: dict[str, asyncio.Event] = {}
failing: dict[str, int] = {}
"""How often a deed still fails."""


@pytest.fixture(autouse=True)
def _fresh() -> None:
    for memory in (done, keys, gates, failing):
        memory.clear()


async def act(deed: str) -> None:
    """Write down a deed, wait at its gate if it has one, and fail if it is to."""
    done.append(deed)
    keys.setdefault(deed, []).append(attempt().idempotency_key)
    if deed in gates:
        await gates[deed].wait()
    if failing.get(deed, 0):
        failing[deed] -= 1
        raise ConnectionError(f"{deed}: the bank is closed")


def gate(deed: str) -> asyncio.Event:
    gates[deed] = asyncio.Event()
    return gates[deed]


@step(retry=Retry(attempts=2, first=0.0))
async def release(what: str, result: str | None) -> None:
    await act(f"release {what}")
    keys.setdefault(f"undoes {what}", []).append(attempt().undoes or "")
    keys.setdefault(f"ticket {what}", []).append(str(result))


@step(retry=Retry.NONE, undo=release)
async def reserve(what: str) -> str:
    await act(f"reserve {what}")
    return f"ticket {what}"


def fail_if(told: str) -> None:
    if told == "fail":
        raise ValueError("as told")


@workflow
async def trip() -> str:
    fail_if(await receive("go", str))
    await reserve("a")
    await reserve("b")
    fail_if(await receive("on", str))
    return "home"


BOTH = ("reserve:2", "reserve:1")


async def bring_to(engine: Engine, when: str) -> Handle[Any]:
    """A trip that is before its steps, in the second one, after both, or undoing the first (the second is undone)."""
    if when == "during":
        gate("reserve b")
    if when == "undoing":
        gate("release a")
    handle = await engine.start(trip)
    if when == "before":
        await until_row(engine, handle.id, lambda row: row.owner is None)
        return handle
    await handle.signal("go", "go")
    await until(lambda: "reserve b" in done)
    if when == "after":
        await until_row(engine, handle.id, lambda row: row.awaiting == "signal on")
    if when == "undoing":
        await handle.signal("on", "fail")
        await until(lambda: "release a" in done)
    return handle


async def strike(handle: Handle[Any], verb: str, when: str) -> None:
    """Let it fail, cancel it, or terminate it; then nothing holds it up any more."""
    if verb == "cancel":
        await handle.cancel(who="anna")
    elif verb == "terminate":
        await handle.terminate(who="anna")
    elif when in ("before", "after"):
        await handle.signal("go" if when == "before" else "on", "fail")
    else:
        failing["reserve b" if when == "during" else "release a"] = 1
    for opening in gates.values():
        opening.set()


ENDS = {
    ("fail", "before"): (Status.FAILED, (), ()),
    ("fail", "during"): (Status.FAILED, BOTH, ()),
    ("fail", "after"): (Status.FAILED, BOTH, ()),
    ("fail", "undoing"): (Status.FAILED, BOTH, ()),
    ("cancel", "before"): (Status.CANCELLED, (), ()),
    ("cancel", "during"): (Status.CANCELLED, BOTH, ()),
    ("cancel", "after"): (Status.CANCELLED, BOTH, ()),
    ("cancel", "undoing"): (Status.FAILED, BOTH, ()),
    ("terminate", "before"): (Status.CANCELLED, (), ()),
    ("terminate", "during"): (Status.CANCELLED, (), BOTH),
    ("terminate", "after"): (Status.CANCELLED, (), BOTH),
    ("terminate", "undoing"): (Status.CANCELLED, BOTH[:1], BOTH[1:]),
}
"""For every verb and moment: the status, the steps that were undone, and those that stay as they are."""


@pytest.mark.parametrize(("verb", "when"), ENDS)
async def test_rule_23_every_verb_at_every_moment_undoes_or_lists_what_was_done(
    opened: Open, verb: str, when: str
) -> None:
    engine, _ = await opened(work=True, workflows=[trip])
    handle = await bring_to(engine, when)
    await strike(handle, verb, when)
    with pytest.raises(ProcessError) as caught:
        await handle.result(LIMIT)
    status, undone, owed = ENDS[verb, when]
    seen = await handle.status()
    assert (seen.status, caught.value.undone, caught.value.owed) == (status, undone, owed)
    assert caught.value.compensated == (undone == BOTH)
    told = () if seen.error is None else (seen.error.undone, seen.error.owed)
    assert told in ((), (undone, owed))
    events = await handle.history()
    assert [event.place for event in events if event.type is EventType.STEP_COMPLETED and event.name == "release"] == [
        f"undo/{one}" for one in undone
    ]
    last = (events[-1].payload or b"").decode()
    assert all(one in last for one in (*undone, *owed)) or verb == "terminate"
    if verb == "terminate" and owed:
        assert events[-1].type is EventType.TERMINATED
        assert "not undone: " + ", ".join(owed) in str(caught.value)
        assert '"not_undone":["' + '","'.join(owed) in last


async def test_a_failed_process_says_that_it_was_compensated_and_an_undo_knows_its_step(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[trip])
    handle = await bring_to(engine, "after")
    await handle.signal("on", "fail")
    with pytest.raises(ProcessFailed, match="ValueError: as told; compensated: reserve:2, reserve:1") as caught:
        await handle.result(LIMIT)
    assert caught.value.type == "ValueError"
    assert done == ["reserve a", "reserve b", "release b", "release a"]
    assert keys["undoes a"] == keys["reserve a"]
    assert keys["release a"] != keys["reserve a"]
    assert keys["ticket a"] == ["ticket a"]


async def test_the_undo_of_a_step_with_an_unknown_end_is_told_so_and_can_ask_by_its_key(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[trip])
    handle = await bring_to(engine, "during")
    await handle.cancel()
    with pytest.raises(ProcessCancelled, match="compensated: reserve:2, reserve:1"):
        await handle.result(LIMIT)
    assert keys["ticket b"] == ["None"]
    assert keys["undoes b"] == keys["reserve b"]


# -- an undo that fails -----------------------------------------------------------------------------------------


async def test_an_undo_that_keeps_failing_breaks_the_process_with_all_that_is_known(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[trip])
    failing["release a"] = 2
    handle = await bring_to(engine, "after")
    await handle.signal("on", "fail")
    with pytest.raises(ProcessBroken) as caught:
        await handle.result(LIMIT)
    assert (caught.value.type, caught.value.undone, caught.value.owed) == ("UndoFailed", BOTH[:1], BOTH[1:])
    for part in (
        "'release' could not undo reserve:1, tried 2 times: ConnectionError: release a: the bank is closed",
        "because of ValueError: as told",
        "Undone: reserve:2. Left: reserve:1.",
    ):
        assert part in caught.value.detail
    assert f"fix the cause, then `perdure retry {handle.id}`" in str(caught.value)
    assert engine.metrics()["undos_spent"] == 1


async def test_a_retry_goes_on_with_the_failed_undo_under_its_old_key_with_fresh_attempts(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[trip])
    failing["release a"] = 3
    handle = await bring_to(engine, "after")
    await handle.signal("on", "fail")
    with pytest.raises(ProcessBroken):
        await handle.result(LIMIT)
    await handle.retry(who="anna", why="the bank is open")
    with pytest.raises(ProcessFailed, match="compensated: reserve:2, reserve:1"):
        await handle.result(LIMIT)
    assert done == ["reserve a", "reserve b", "release b", *["release a"] * 4]
    assert len(set(keys["release a"])) == 1
    assert (await handle.status()).run == 1


async def test_a_broken_undo_that_is_terminated_lists_what_stayed(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[trip])
    failing["release a"] = 2
    handle = await bring_to(engine, "after")
    await handle.signal("on", "fail")
    with pytest.raises(ProcessBroken):
        await handle.result(LIMIT)
    await handle.terminate(who="anna")
    with pytest.raises(ProcessCancelled, match="not undone: reserve:1"):
        await handle.result(LIMIT)


@workflow
async def side_by_side() -> None:
    await asyncio.gather(reserve("a"), reserve("b"), reserve("c"))
    raise ValueError("no")


async def test_what_runs_beside_an_undo_that_gives_up_is_finished_before_the_process_is_parked(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[side_by_side])
    failing["release a"] = 2
    opening = gate("release b")
    handle = await engine.start(side_by_side)
    await until(lambda: engine.metrics()["undos_spent"])
    assert (await handle.status()).status is Status.RUNNING
    opening.set()
    with pytest.raises(ProcessBroken, match=r"Left: reserve:1; "):
        await handle.result(LIMIT)
    await handle.retry()
    with pytest.raises(ProcessFailed, match="compensated"):
        await handle.result(LIMIT)
    assert sorted(done[3:]) == ["release a"] * 3 + ["release b", "release c"]


@step
async def swallow(text: str, result: str | None) -> None: ...


@step(undo=swallow)
async def swell(text: str) -> str:
    return text


@workflow
async def oversized() -> None:
    await swell("x" * 1_500_000)
    raise ValueError("no")


async def test_an_undo_that_cannot_be_called_breaks_the_process_instead_of_being_left_out(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[oversized])
    handle = await engine.start(oversized)
    with pytest.raises(ProcessBroken, match="PayloadTooLarge"):
        await handle.result(LIMIT)


# -- retry, deadlines, ends ---------------------------------------------------------------------------------------


async def test_a_compensated_process_is_not_retried_as_if_its_steps_still_held(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[trip])
    handle = await bring_to(engine, "during")
    await strike(handle, "fail", "during")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    with pytest.raises(IllegalMove, match="cannot retry what was compensated: reserve:2, reserve:1 would count as"):
        await handle.retry()


@step(retry=Retry.NONE)
async def pay() -> str:
    await act("pay")
    return "paid"


@workflow
async def second_choice() -> str:
    try:
        async with saga():
            await reserve("a")
            await reserve("b")
    except StepError:
        done.append("second choice")
    return await pay()


async def test_a_retry_after_a_choice_that_was_undone_before_keeps_what_was_undone(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[second_choice])
    failing.update({"reserve b": 1, "pay": 1})
    handle = await engine.start(second_choice)
    with pytest.raises(ProcessFailed, match="pay"):
        await handle.result(LIMIT)
    await handle.retry()
    assert await handle.result(LIMIT) == "paid"
    assert [deed for deed in done if deed.startswith("rel")] == ["release b", "release a"]


async def test_a_deadline_undoes_nothing_and_lists_what_stayed(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[trip])
    handle = await engine.start(trip.options(deadline=2.0))
    await handle.signal("go", "go")
    with pytest.raises(ProcessFailed, match="deadline; not undone: reserve:2, reserve:1"):
        await handle.result(LIMIT)


@workflow
async def wrong_answer() -> int:
    await reserve("a")
    return "not a number"  # type: ignore[return-value]


async def test_a_workflow_whose_result_is_refused_has_failed_and_is_undone(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[wrong_answer])
    with pytest.raises(ProcessFailed, match="compensated: reserve:1"):
        await (await engine.start(wrong_answer)).result(LIMIT)


# -- in flight ----------------------------------------------------------------------------------------------------


async def test_rule_23_a_step_is_released_only_when_the_history_knows_that_its_undo_is_owed(opened: Open) -> None:
    client, _ = await opened()
    _, store = await opened(work=True, workflows=[side_by_side])
    blocked = store.before = Gate("commit")
    handle = await client.start(side_by_side)
    await asyncio.wait_for(blocked.reached.wait(), LIMIT)
    assert done == []
    blocked.open.set()
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    assert [event.type for event in await handle.history()][:3] == [EventType.UNDO_OWED] * 3


async def test_an_undo_in_flight_when_its_worker_goes_runs_again_under_its_key_and_nothing_else_does(
    opened: Open,
) -> None:
    first, _ = await opened(work=True, workflows=[trip])
    handle = await bring_to(first, "undoing")
    await first.close(0)
    gates.clear()
    second, _ = await opened(work=True, workflows=[trip])
    with pytest.raises(ProcessFailed, match="compensated: reserve:2, reserve:1"):
        await second.process(handle.id).result(timeout=LIMIT)
    assert done == ["reserve a", "reserve b", "release b", "release a", "release a"]
    assert len(set(keys["release a"])) == 1


@step(hard=True, timeout=60)
def release_in_a_cell(what: str, result: str | None) -> str | None:
    return attempt().undoes


@step(undo=release_in_a_cell)
async def reserve_for_a_cell(what: str) -> str:
    return attempt().idempotency_key


@workflow
async def with_a_cell() -> None:
    await reserve_for_a_cell("a")
    raise ValueError("no")


async def test_an_undo_in_a_cell_knows_the_key_of_its_step(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[with_a_cell])
    handle = await engine.start(with_a_cell)
    with pytest.raises(ProcessFailed, match="compensated"):
        await handle.result(LIMIT)
    reserved, released = (e.payload for e in await handle.history() if e.type is EventType.STEP_COMPLETED)
    assert reserved == released
