"""Canaries that tell nothing: another is let through, or the same one goes on, before its time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import Engine
from perdure.kernel import child, transition
from perdure.kernel.breaker import HALF_OPEN, Probed
from perdure.kernel.claim import Claim
from perdure.kernel.commit import Verdict
from perdure.kernel.failure import Failure
from perdure.kernel.note import Note
from perdure.kernel.outage import PREFIX, Canary, OutageState
from perdure.kernel.process import Process, Status
from perdure.kernel.worker import WorkerRow
from tests.runtime import test_outages
from tests.runtime.conftest import A_MOMENT, LIMIT, Open, until_row
from tests.runtime.test_outages import broken_down, canaries_may_go, down, order, pay, ran, worker

_anew = test_outages._anew


async def over(engine: Engine) -> None:
    """Wait until the outage has ended, by its canary."""
    async with asyncio.timeout(LIMIT):
        while (view := (await engine.outages.list())[0]).held:
            engine.worker.outages.loop.wake()
            await asyncio.sleep(A_MOMENT)
    assert [change[1] for change in view.changes] == ["open", "half-open", "closed"], "by one canary, and at once"


async def failed(engine: Engine) -> None:
    """Wait until the canary has failed."""
    async with asyncio.timeout(LIMIT):
        while (view := (await engine.outages.list())[0]).changes[-1][1] == "half-open":
            engine.worker.outages.loop.wake()
            await asyncio.sleep(A_MOMENT)
    assert view.held and "a canary has failed: BankDown" in view.reason


async def orders_that_wait(engine: Engine, many: int, **options: Any) -> list[str]:
    """So many orders, each older than the next, of a kind that is held."""
    return [(await engine.start(order.options(key=f"{number}", **options), f"A-{number}")).id for number in range(many)]


async def test_a_canary_that_was_started_with_a_debounce_is_begun_and_goes_on_as_the_canary(opened: Open) -> None:
    engine, _ = await opened(**worker())
    await broken_down(engine)
    ids = await orders_that_wait(engine, 3, debounce=0.001)
    await canaries_may_go(engine)
    await until_row(engine, ids[0], lambda row: row.status is Status.FAILED)
    await failed(engine)
    assert ran == ["A-0"]
    assert [(await engine.row(id)).key is None for id in ids] == [True, False, False], "the others have not begun"


async def test_a_canary_that_was_ordered_to_end_lets_another_through(opened: Open) -> None:
    engine, store = await opened(**worker())
    await broken_down(engine)
    ids = await orders_that_wait(engine, 2)
    row = await engine.row(ids[0])
    await store.send([child.terminate(row.id, bytes(16))])
    await canaries_may_go(engine)
    await until_row(engine, ids[1], lambda row: row.status is Status.FAILED)
    await failed(engine)
    assert (await engine.row(ids[0])).status is Status.CANCELLED


async def test_a_canary_whose_deadline_has_passed_lets_another_through(opened: Open) -> None:
    engine, _ = await opened(**worker())
    await broken_down(engine)
    await engine.worker.supervisor.stop()  # else a sweep ends it first
    [late] = await orders_that_wait(engine, 1, deadline=0.001)
    [good] = [(await engine.start(order, "B-1")).id]
    down.clear()
    await canaries_may_go(engine)
    await until_row(engine, good, lambda row: row.status is Status.COMPLETED)
    await over(engine)
    assert ran == ["B-1"] and not (await engine.row(late)).final


async def overdue(engine: Engine, id: str) -> None:
    """Another worker's sweep ends a process by its deadline."""
    row = await engine.row(id)
    ended = transition.expired(row, await engine.store.history(row.id, row.run), now=await engine.store.now())
    [answer] = await engine.store.commit([ended])
    assert answer.verdict is Verdict.APPLIED


async def failed_by_hand(engine: Engine, id: str) -> None:
    """A person ends a process as failed."""
    await engine.process(id).fail(who="ana", why="it is a test order")


@pytest.mark.parametrize("end", [overdue, failed_by_hand])
async def test_a_canary_that_its_deadline_or_a_person_ends_as_it_runs_lets_another_through(
    opened: Open, monkeypatch: pytest.MonkeyPatch, end: Callable[[Engine, str], Awaitable[None]]
) -> None:
    at_the_bank, whole = asyncio.Event(), pay.function

    async def slowly(order: str) -> str:
        if order == "A-0":
            at_the_bank.set()
            await asyncio.Event().wait()
        return str(await whole(order))

    monkeypatch.setattr(pay, "function", slowly)
    engine, _ = await opened(**worker())
    client, _ = await opened()
    await broken_down(engine)
    first, second = await orders_that_wait(engine, 2)
    down.clear()
    await canaries_may_go(engine)
    await asyncio.wait_for(at_the_bank.wait(), LIMIT)
    await end(client, first)
    await until_row(engine, second, lambda row: row.status is Status.COMPLETED)
    await over(engine)
    assert (await engine.row(first)).status is Status.FAILED


def test_an_error_of_the_code_that_has_the_name_of_a_forced_end_is_a_failed_canary() -> None:
    class DeadlineExceeded(Exception):
        """As a client of gRPC raises it."""

    row = Process(bytes(16), "order", None, b"[]", status=Status.FAILED, events=9)
    forced = transition.expired(replace(row, status=Status.RUNNING, due_at=9), now=9).after
    told = replace(row, error=Failure.of(DeadlineExceeded("no answer")).encode())
    assert Canary("order", 2, 0).told(forced, 9) is None and Canary("order", 2, 0).void(forced, 9)
    assert Canary("order", 2, 0).told(told, 9) == Probed(False, 2, "DeadlineExceeded")


async def test_a_canary_that_was_of_a_dead_worker_is_freed_and_goes_on_as_the_canary(opened: Open) -> None:
    engine, store = await opened(**worker())
    await broken_down(engine)
    await engine.worker.supervisor.stop()  # else a sweep frees it first
    [id] = await orders_that_wait(engine, 1)
    row, dead = await engine.row(id), bytes(15) + b"d"
    await store.enlist(WorkerRow(dead, "dead", engine.worker.registry.offer(0).encode()), 1_000_000)
    taken = await store.claim(Claim(dead, ((row.kind, row.code),), 1, 1, only=row.id))
    assert len(taken.claimed) == 1
    await store.retire(dead, None, died=True)
    down.clear()
    await canaries_may_go(engine)
    await until_row(engine, id, lambda row: row.status is Status.COMPLETED)
    await over(engine)


async def test_a_canary_that_is_due_again_before_it_was_looked_at_goes_on_as_the_canary(opened: Open) -> None:
    engine, _ = await opened(**worker())
    await broken_down(engine)
    [id] = await orders_that_wait(engine, 1)
    watch = engine.worker.outages
    await watch.loop.stop()
    row = await engine.row(id)
    [note] = [note for note in await engine.store.records(Note) if note.name == f"{PREFIX}order"]
    state, now = note.read(OutageState), await engine.store.now()
    half = replace(state.circuit, state=HALF_OPEN, until=now + 3_600_000_000, probes=1)
    change = note.next(replace(state, circuit=half), now)
    assert change in await engine.store.records(Note, [change])
    watch._parted[row.id] = Canary("order", half.opened, 0)  # let through, it has rested and is due once more
    down.clear()
    await watch.look()
    await until_row(engine, id, lambda row: row.status is Status.COMPLETED)


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.HELD])
def test_a_canary_that_was_ended_or_held_from_outside_tells_nothing(status: Status) -> None:
    row = Process(bytes(16), "order", None, b"[]", status=status, due_at=9)
    assert Canary("order", 2, 0).told(row, 5) is None and Canary("order", 2, 0).void(row, 5)


def test_a_canary_that_was_put_off_before_it_began_has_not_come_as_far_as_to_wait() -> None:
    row = Process(bytes(16), "order", None, b"[]", due_at=9)
    assert Canary("order", 2, 0).told(row, 5) is None and not Canary("order", 2, 0).void(row, 5)
    assert Canary("order", 2, 0).void(row, 9), "it is due"
