"""No undo overtakes an attempt that has not ended, in a thread or in another worker's hands; nor waits for ever."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.clock import SECOND
from perdure.errors import Permanent, ProcessCancelled, ProcessFailed
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.runtime import turn_commit
from tests.runtime.conftest import LIMIT, Open, until, until_row

done: list[str] = []
overtaken = threading.Event()


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    overtaken.clear()


@step
async def refund(cents: int, result: str | None) -> None:
    done.append(f"refund {result}")


@step(undo=refund, queue="bank", retry=Retry.NONE)
async def debit(cents: int) -> str:
    done.append("debit begins")
    try:
        if cents:
            await asyncio.Event().wait()
    finally:
        done.append("debit ends")
    return "receipt"


@workflow
async def sale(cents: int) -> None:
    await debit(cents)
    raise ValueError("sold out")


async def test_a_queued_step_is_undone_with_its_answer(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[sale], queues=["bank"])
    with pytest.raises(ProcessFailed, match="compensated: debit:1"):
        await (await engine.start(sale, 0)).result(LIMIT)
    assert done == ["debit begins", "debit ends", "refund receipt"]


async def test_rule_23_the_undo_of_a_queued_step_waits_until_its_worker_has_let_go_of_it(opened: Open) -> None:
    seller, _ = await opened(work=True, workflows=[sale])
    await opened(work=True, workflows=[], queues=["bank"])
    handle = await seller.start(sale, 7)
    await until(lambda: done)
    await handle.cancel()
    with pytest.raises(ProcessCancelled, match="compensated: debit:1"):
        await handle.result(LIMIT)
    assert done == ["debit begins", "debit ends", "refund None"]


let_go = threading.Event()


@step
async def release(what: str) -> None:
    done.append(f"release {what}")


@step(undo=release, retry=Retry.NONE)
def slow(what: str) -> None:
    done.append("slow begins")
    let_go.wait(LIMIT)
    done.append("slow ends")


@workflow
async def in_a_thread() -> None:
    await slow("a")


async def test_rule_23_no_undo_begins_before_a_cancelled_step_has_left_its_thread(opened: Open) -> None:
    let_go.clear()
    engine, _ = await opened(work=True, workflows=[in_a_thread])
    handle = await engine.start(in_a_thread)
    await until(lambda: done)
    await handle.cancel()
    await until_row(engine, handle.id, lambda row: row.events == 2)
    await until(lambda: engine.metrics()["in_hand"])
    assert done == ["slow begins"]
    let_go.set()
    with pytest.raises(ProcessCancelled, match="compensated: slow:1"):
        await handle.result(LIMIT)
    assert done == ["slow begins", "slow ends", "release a"]


@step(undo=release, retry=Retry.NONE, timeout=0.05)
def hangs(what: str) -> None:
    done.append("hangs")
    let_go.wait(LIMIT)


@workflow
async def hanging() -> None:
    await hangs("a")


async def test_an_undo_waits_only_a_moment_for_a_thread_that_has_outlived_its_deadline(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNDO_GRACE_SECONDS", 0.1)
    let_go.clear()
    engine, _ = await opened(work=True, workflows=[hanging])
    with pytest.raises(ProcessFailed, match=r"TimeoutError.*compensated: hangs:1"):
        await (await engine.start(hanging)).result(LIMIT)
    assert done == ["hangs", "release a"]
    let_go.set()


@step
async def overtake(what: str) -> None:
    done.append(f"release {what}")
    overtaken.set()


@step(retry=Retry.NONE)
def plain(what: str) -> None:
    done.append("plain begins")
    overtaken.wait(0.2)
    done.append("plain ends")


@step(undo=overtake)
async def quick(what: str) -> None:
    done.append("quick")


@step(retry=Retry.NONE)
async def sold_out() -> None:
    await until(lambda: "plain begins" in done)
    raise Permanent("sold out")


@workflow
async def beside() -> None:
    await quick("a")
    await asyncio.gather(plain("b"), sold_out())


async def test_rule_23_no_undo_begins_while_a_step_without_an_undo_still_runs(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[beside])
    with pytest.raises(ProcessFailed, match="compensated: quick:1"):
        await (await engine.start(beside)).result(LIMIT)
    assert done == ["quick", "plain begins", "plain ends", "release a"]


@step(timeout=0.3, retry=Retry.NONE)
async def never_ends() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        done.append("over")


@step(retry=Retry(attempts=2, first=30.0))
async def fails_once() -> None:
    await asyncio.to_thread(overtaken.wait, 0.2)
    done.append("over")
    raise ConnectionError("not now")


@workflow
async def beside_what(name: str) -> None:
    await quick("a")
    await asyncio.gather({"never_ends": never_ends, "fails_once": fails_once}[name](), fails())


@step(retry=Retry.NONE)
async def fails() -> None:
    raise Permanent("sold out")


@pytest.mark.parametrize("name", ["never_ends", "fails_once"])
async def test_an_undo_waits_for_an_attempt_that_runs_until_it_fails_or_its_time_is_over(
    opened: Open, name: str
) -> None:
    engine, _ = await opened(work=True, workflows=[beside_what])
    with pytest.raises(ProcessFailed, match="compensated: quick:1"):
        await (await engine.start(beside_what, name)).result(LIMIT)
    assert done == ["quick", "over", "release a"]


@step
async def release_at_last(what: str) -> None:
    done.append("release")
    if done.count("release") == 1:
        raise Permanent("not today")


@step(undo=release_at_last)
async def reserve(what: str) -> None:
    """What is taken back at the second time only."""


@step(retry=Retry(attempts=5, first=0.01))
async def fails_always() -> None:
    await asyncio.to_thread(overtaken.wait, 0.2)
    done.append("over")
    raise ConnectionError("not now")


@workflow
async def beside_failing() -> None:
    await reserve("a")
    await asyncio.gather(fails_always(), fails())


async def test_a_step_without_an_undo_is_not_tried_again_while_its_process_is_undone(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[beside_failing])
    handle = await engine.start(beside_failing)
    await until_row(engine, handle.id, lambda row: row.status is Status.BROKEN)
    await handle.retry()
    with pytest.raises(ProcessFailed, match="compensated: reserve:1"):
        await handle.result(LIMIT)
    assert done == ["over", "release", "release"]


@step(retry=Retry(attempts=9, first=40.0, jitter=0))
async def release_later(what: str) -> None:
    raise ConnectionError("not now")


@step(undo=release_later)
async def hold(what: str) -> None:
    """What is taken back much later."""


@step(retry=Retry(attempts=5, first=0.01))
async def fails_soon() -> None:
    raise ConnectionError("not now")


@workflow
async def beside_waiting() -> None:
    await hold("a")
    await asyncio.gather(fails_soon(), fails())


async def test_a_process_rests_while_only_its_undo_waits_for_the_next_attempt(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[beside_waiting])
    handle = await engine.start(beside_waiting)
    row = await until_row(
        engine, handle.id, lambda row: row.owner is None and row.due_at > row.created_at + 20 * SECOND
    )
    assert row.awaiting == "undo release_later"


async def test_a_process_that_a_defect_would_have_claimed_in_a_circle_rests_between_two_claims(
    opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def heard(loop: object, ask: object) -> bool:  # the defect: each step that is open seems to be the next worker's
        return False

    monkeypatch.setattr(turn_commit, "unheard", heard)
    engine, _ = await opened(work=True, workflows=[beside_waiting])
    with caplog.at_level(logging.ERROR, "perdure.process"):
        handle = await engine.start(beside_waiting)
        await until_row(engine, handle.id, lambda row: row.owner is None and row.due_at > row.created_at + 4 * SECOND)
    assert f"process {handle.id} leaves a step to another worker for no reason" in caplog.text


occupied = threading.Event()


@step
def occupant() -> None:
    done.append("occupied")
    occupied.wait(LIMIT)


@step
def afterwards() -> None:
    done.append("afterwards")


@step
async def mark(what: str) -> None:
    done.append(what)


@step
async def free(what: str) -> None:
    occupied.set()
    await until(lambda: "afterwards" in done)
    done.append(f"release {what}")


@step(undo=free)
async def take(what: str) -> None:
    """What is taken back while other processes use the thread."""


@step(retry=Retry.NONE)
async def fails_late() -> None:
    done.append("asked")
    await until(lambda: "waiting" in done)
    raise Permanent("sold out")


@workflow
async def occupying() -> None:
    await occupant()


@workflow
async def without_a_thread() -> None:
    await take("a")
    await asyncio.gather(plain("b"), fails_late())


@workflow
async def behind() -> None:
    await asyncio.gather(afterwards(), mark("waiting"))


async def test_a_step_without_an_undo_that_waits_for_a_thread_does_not_begin_beside_the_undo(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STEP_THREADS", 1)
    occupied.clear()
    engine, _ = await opened(work=True, workflows=[occupying, without_a_thread, behind])
    await engine.start(occupying)
    await until(lambda: "occupied" in done)
    handle = await engine.start(without_a_thread)
    await until(lambda: "asked" in done)
    await engine.start(behind)
    with pytest.raises(ProcessFailed, match="compensated: take:1"):
        await handle.result(LIMIT)
    assert done == ["occupied", "asked", "waiting", "afterwards", "release a"]
