"""Children: started in their parent's commit, awaited by message, asked to end before it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import receive, tell, workflow
from perdure.errors import ProcessCancelled, ProcessFailed, StepError
from perdure.kernel.retry import Retry
from perdure.runtime.options import WorkerOptions
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT, Open, until, until_row

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


async def test_a_parent_gets_the_typed_results_of_its_children(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[sums, doubled])
    handle = await engine.start(sums, 5)
    assert await handle.result(LIMIT) == 20
    types = [event.type.name for event in await engine.process(handle.id).history()]
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


async def test_a_child_s_failure_is_an_error_that_its_parent_may_catch(opened: Open) -> None:
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
async def test_what_becomes_of_a_child_at_its_parent_s_end_is_said_when_it_is_asked_for(
    opened: Open, bond: str
) -> None:
    engine, _ = await opened(work=True, workflows=[leaves, tidy])
    assert await (await engine.start(leaves, bond)).result(LIMIT) == "gone"
    [child] = await engine.list(Search(kind="tidy"))
    if bond == "abandon":
        await until(lambda: "left" in done)
        gates["left"].set()
        assert await engine.process(child.id).result(timeout=LIMIT) == "left"
    else:
        with pytest.raises(ProcessCancelled):
            await engine.process(child.id).result(timeout=LIMIT)


@step(queue="bank")
async def charge_cents(cents: int) -> int:
    done.append(cents)
    return cents + 1


@workflow
async def pays(cents: int) -> int:
    return await charge_cents(cents) + await double(1)


async def test_a_queued_step_runs_as_a_task_of_its_queue(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[pays], queues=["bank"])
    assert await (await engine.start(pays, 12)).result(LIMIT) == 15
    [task] = await engine.list(Search(kind="@bank"))
    assert (task.status, task.result) == ("completed", 13)


@step(queue="bank", retry=Retry(attempts=2, first=0.001, jitter=0.0))
async def keyed(name: str) -> str:
    done.append((attempt().idempotency_key, attempt().number))
    if len(done) == 1:
        raise ConnectionError("busy")
    return name


@workflow
async def asks_keyed() -> str:
    return await keyed("x")


async def test_all_attempts_of_a_task_carry_the_key_of_the_step_that_its_parent_asked_for(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[asks_keyed], queues=["bank"])
    handle = await engine.start(asks_keyed)
    assert await handle.result(LIMIT) == "x"
    assert done == [(f"{handle.id}/1/keyed:1", 1), (f"{handle.id}/1/keyed:1", 2)]


@step(queue="bank", retry=Retry.NONE)
async def refuses(cents: int) -> None:
    raise ValueError(f"{cents} is too much")


@workflow
async def overpays() -> str:
    try:
        await refuses(9)
    except StepError as error:
        return f"{error.step} {error.type} {error.attempts}"
    return "never"


async def test_a_task_fails_in_its_parent_as_an_ordinary_step_does(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[overpays], queues=["bank"])
    assert await (await engine.start(overpays)).result(LIMIT) == "refuses ValueError 1"


@workflow
async def waits_for_two() -> list[str]:
    return await asyncio.gather(tidy.child("first"), tidy.child("second"))


async def test_a_parent_whose_worker_is_gone_goes_on_elsewhere_with_the_children_it_had(opened: Open) -> None:
    options = WorkerOptions(lease_seconds=1.5, beat_seconds=0.1)
    first, store = await opened(work=True, workflows=[waits_for_two], options=options)
    other, _ = await opened(work=True, workflows=[tidy], options=options)
    handle = await first.start(waits_for_two)
    await until(lambda: sorted(done) == ["first", "second"])
    gates["first"].set()
    await until_row(first, handle.id, lambda row: row.seen == 1)
    assert first.worker is not None
    await first.worker.claimer.loop.stop()
    first.worker.scheduler.drop(first.worker.scheduler.instances[handle.id_bytes])
    await store.retire(first.worker.incarnation.id, None, died=False)
    third, _ = await opened(work=True, workflows=[waits_for_two], options=options)
    gates["second"].set()
    assert await third.process(handle.id).result(timeout=LIMIT) == ["first", "second"]
    assert sorted(done) == ["first", "second"]
    types = [event.type.name for event in await third.process(handle.id).history()]
    assert types.count("CHILD_STARTED") == 2
    assert len(await other.list(Search(kind="tidy"))) == 2


@workflow
async def many(n: int) -> int:
    return sum(await asyncio.gather(*(doubled.child(one) for one in range(n))))


async def test_more_children_than_one_commit_takes_are_started_by_several(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OUTBOX_RECORDS", 7)
    engine, _ = await opened(work=True, workflows=[many, doubled])
    assert await (await engine.start(many, 30)).result(LIMIT) == 870
    assert sorted(done) == list(range(30))


@workflow
async def fans_out(n: int) -> str:
    for one in range(n):
        doubled.child.options(on_parent_end="abandon")(one)
    return "sent"


async def test_children_asked_for_in_the_last_turn_are_started_with_the_end(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[fans_out, doubled])
    assert await (await engine.start(fans_out, 3)).result(LIMIT) == "sent"
    await until(lambda: sorted(done) == [0, 1, 2])


@workflow
async def gives_up() -> str:
    try:
        async with asyncio.timeout(0.01):
            await keyed_gate("slow")
    except TimeoutError:
        return "gave up"
    return "never"


@step(queue="bank")
async def keyed_gate(name: str) -> str:
    try:
        await gates[name].wait()
    except asyncio.CancelledError:
        done.append("task cancelled")
        raise
    return name


async def test_a_task_that_its_parent_wants_no_more_is_cancelled(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[gives_up], queues=["bank"])
    assert await (await engine.start(gives_up)).result(LIMIT) == "gave up"
    [task] = await engine.list(Search(kind="@bank"))
    with pytest.raises(ProcessCancelled):
        await engine.process(task.id).result(timeout=LIMIT)


@workflow
async def cares_for(name: str) -> str:
    return await frail.child(name)


@step(retry=Retry.NONE)
async def breaks_once(name: str) -> str:
    done.append(name)
    if len(done) == 1:
        raise RuntimeError("once")
    return name


@workflow
async def frail(name: str) -> str:
    return await breaks_once(name)


async def test_rule_21_a_retried_parent_asks_for_the_child_that_failed_anew(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[cares_for, frail])
    handle = await engine.start(cares_for, "x")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    await handle.retry(why="again")
    assert await handle.result(LIMIT) == "x"
    assert sorted(one.status for one in await engine.list(Search(kind="frail"))) == ["completed", "failed"]


@pytest.mark.parametrize("bond", ["cancel", "abandon"])
async def test_the_children_of_a_terminated_parent_hear_of_its_end_in_the_same_transaction(
    opened: Open, bond: str
) -> None:
    engine, _ = await opened(work=True, workflows=[stays_with, tidy])
    handle = await engine.start(stays_with, bond)
    await until(lambda: "left" in done)
    await handle.terminate(why="test")
    [child] = await engine.list(Search(kind="tidy"))
    if bond == "abandon":
        gates["left"].set()
        assert await engine.process(child.id).result(timeout=LIMIT) == "left"
        assert child.unheard == 0
    else:
        with pytest.raises(ProcessCancelled):
            await engine.process(child.id).result(timeout=LIMIT)
        assert done[-1] == "left tidied"


@workflow
async def stays_with(bond: str) -> str:
    return await tidy.child.options(on_parent_end=bond)("left")  # type: ignore[arg-type]


@workflow
async def listens() -> list[int]:
    return [await receive("number", int), await receive("number", int)]


@workflow
async def talks(to: str) -> str:
    tell(to, "number", 1)
    await double(1)
    tell(to, "number", 2)
    await gated("talk")
    return "told"


async def test_a_process_sends_signals_to_another_each_of_them_once(opened: Open) -> None:
    options = WorkerOptions(lease_seconds=1.5, beat_seconds=0.1)
    first, store = await opened(work=True, workflows=[talks], options=options)
    other, _ = await opened(work=True, workflows=[listens], options=options)
    listener = await other.start(listens)
    talker = await first.start(talks, listener.id)
    assert await listener.result(LIMIT) == [1, 2]
    await until(lambda: "talk" in done)
    assert first.worker is not None
    await first.worker.claimer.loop.stop()
    first.worker.scheduler.drop(first.worker.scheduler.instances[talker.id_bytes])
    await store.retire(first.worker.incarnation.id, None, died=False)
    second, _ = await opened(work=True, workflows=[talks], options=options)
    gates["talk"].set()
    assert await second.process(talker.id).result(timeout=LIMIT) == "told"
    assert (await other.row(listener.id)).inbox == 2
    types = [event.type.name for event in await second.process(talker.id).history()]
    assert types.count("SIGNAL_SENT") == 2
