"""Very many overdue processes: a start beside them waits for no more of them than its place in the order says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.kernel.claim import Claim
from perdure.runtime.options import WorkerOptions
from perdure.testing.faults import FaultyStore
from tests.runtime.conftest import LIMIT, Open, until

HEAP = 600
done: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


@step
async def note(who: str) -> None:
    done.append(who)


@workflow
async def overdue(who: str) -> None:
    await note(who)


@workflow
async def fresh(who: str) -> None:
    await note(who)


class Permits:
    """Lets a worker's claims pass one by one, and counts them."""

    def __init__(self, store: FaultyStore) -> None:
        self._left = asyncio.Semaphore(0)
        self.passed = 0
        store.before = self._visit

    async def _visit(self, name: str, claim: Any) -> None:
        if name == "claim" and isinstance(claim, Claim) and claim.limit:
            await self._left.acquire()
            self.passed += 1

    def give(self, claims: int) -> None:
        for _ in range(claims):
            self._left.release()


async def test_a_start_in_a_worker_that_has_room_waits_for_no_claim_of_the_overdue(opened: Open) -> None:
    worker, store = await opened(work=True, workflows=[overdue, fresh])
    client, _ = await opened(workflows=[overdue, fresh])
    permits = Permits(store)
    await client.start_many(overdue, [(f"{n}",) for n in range(HEAP)])
    names = [f"new {n}" for n in range(20)]
    for name in names:
        await (await worker.start(fresh, name)).result(LIMIT)
    assert (done, permits.passed) == (names, 0)
    permits.give(10_000)
    await until(lambda: len(done) == HEAP + len(names))
    assert sorted(done) == sorted([*names, *(f"{n}" for n in range(HEAP))]), "each has run once"
    assert worker.metrics()["claims"] == HEAP


async def test_a_start_that_is_to_be_claimed_comes_after_what_was_due_before_it_and_before_all_that_is_due_later(
    opened: Open,
) -> None:
    """Of whichever kind they are: the later ones are of the kind that the worker hosts first."""
    client, _ = await opened(workflows=[overdue, fresh])
    await client.start_many(overdue, [("before",)] * 30)
    await client.start(fresh, "new")
    await client.start_many(overdue, [("later",)] * 30)
    await opened(work=True, workflows=[overdue, fresh], options=WorkerOptions(in_flight=1))
    await until(lambda: len(done) == 61)
    assert done == ["before"] * 30 + ["new"] + ["later"] * 30


async def test_an_urgent_start_is_among_the_next_claims_however_many_are_overdue(opened: Open) -> None:
    """Not in the next one: that may have been asked for already, for processes that were named."""
    _, store = await opened(work=True, workflows=[overdue, fresh], options=WorkerOptions(in_flight=20))
    client, _ = await opened(workflows=[overdue, fresh])
    permits = Permits(store)
    await client.start_many(overdue, [(f"{n}",) for n in range(HEAP)])
    permits.give(1)
    await until(lambda: done)
    urgent = await client.start(fresh.options(priority=0), "urgent")
    permits.give(3)
    await urgent.result(LIMIT)
    assert done.index("urgent") < 80
    permits.give(10_000)
