"""A claim that fails over what it reads is tried with fewer rows, on both stores; one alone makes no hot loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.workflow import receive, workflow
from perdure.clock import Computer
from perdure.errors import BadRecord, StoreError, StoreUnavailable
from perdure.kernel.claim import Claim
from perdure.runtime import claim_portion
from perdure.testing.faults import FaultyStore, Visit
from tests.runtime.conftest import LIMIT, Open, until, until_row


@workflow
async def at_once(what: str) -> str:
    return what


def failing_above(most: int, asked: list[int], error: Exception) -> Visit:
    """Fails claims of more than so many, as a database does that cannot hand over so much at once."""

    async def visit(name: str, claim: Any) -> None:
        if name == "claim" and isinstance(claim, Claim) and claim.only is None and claim.limit > 0:
            asked.append(claim.limit)
            if claim.limit > most:
                raise error

    return visit


def unread() -> StoreUnavailable:
    """As when the rows were taken, and the statement that reads their histories took too long."""
    error = StoreUnavailable("the connection was given up")
    error.unread = True
    return error


@pytest.mark.parametrize(
    "error", [StoreError("too large"), BadRecord("54000"), MemoryError(), unread()], ids=lambda e: type(e).__name__
)
@pytest.mark.parametrize("answered", [False, True], ids=["refused", "taken and not read"])
async def test_a_claim_that_fails_is_tried_with_half_as_many_until_all_are_taken(
    opened: Open, error: Exception, answered: bool
) -> None:
    client, _ = await opened(workflows=[at_once])
    worker, store = await opened(work=True, workflows=[at_once])
    asked: list[int] = []
    setattr(store, "after" if answered else "before", failing_above(3, asked, error))
    handles = [await client.start(at_once, str(number)) for number in range(30)]
    assert await asyncio.gather(*(handle.result(LIMIT) for handle in handles)) == [str(one) for one in range(30)]
    assert any(count > 3 for count in asked) and any(count <= 3 for count in asked)
    if isinstance(error, MemoryError):
        assert worker.telemetry.counters["store_errors"] == 0
    else:  # the worker asks for more again and again, and may not have heard of the last failure yet
        await until(lambda: worker.telemetry.counters["store_errors"] == sum(count > 3 for count in asked))


async def test_a_claim_that_takes_longer_than_its_lease_is_followed_by_one_of_half_as_many(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    later, monotonic = [0.0], Computer.monotonic
    monkeypatch.setattr(Computer, "monotonic", lambda self: monotonic(self) + later[0])
    client, _ = await opened(workflows=[at_once])
    engine, store = await opened(work=True, workflows=[at_once])
    assert engine.worker is not None
    claimer = engine.worker.claimer
    await claimer.loop.stop()
    await client.start_many(at_once, [(str(number),) for number in range(30)])

    async def slow(name: str, claim: Any) -> None:
        later[0] += limits.LEASE_SECONDS + 1 if name == "claim" else 0.0

    store.after = slow
    for _ in range(2):
        await claimer.look()
    assert [claim.limit for name, claim in store.calls if name == "claim"][-2:] == [limits.CLAIM_ROWS, 15]
    assert engine.metrics()["leases_lost"] == 30, "they were claimed together, too late to go on with any of them"


async def test_a_process_that_cannot_be_claimed_even_alone_is_said_once_and_tried_ever_less_often(
    opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(claim_portion, "FIRST_WAIT_SECONDS", 0.001)
    worker, store = await opened(work=True, workflows=[at_once])
    asked: list[int] = []
    store.before = failing_above(0, asked, StoreError("it is too large"))
    handle = await worker.start(at_once, "late")
    await until(lambda: asked.count(1) >= 4)
    store.before = FaultyStore(store).before
    assert await handle.result(LIMIT) == "late"
    said = [
        record.getMessage() for record in caplog.records if "claim of a single process fails" in record.getMessage()
    ]
    assert len(said) == 1 and "StoreError: it is too large" in said[0]


@workflow
async def rests() -> str:
    return await receive("go", str)


@pytest.mark.parametrize("answered", [False, True], ids=["refused", "taken and not read"])
async def test_a_process_at_rest_that_cannot_be_claimed_keeps_no_other_waiting(opened: Open, answered: bool) -> None:
    client, _ = await opened(workflows=[at_once, rests])
    first, _ = await opened(work=True, workflows=[rests])
    bad, good = [await client.start(rests) for _ in range(2)]
    for one in (bad, good):
        await until_row(client, one.id, lambda row: row.awaiting == "signal go" and row.owner is None)
    await first.close()
    worker, store = await opened(work=True, workflows=[at_once, rests])
    assert worker.worker is not None
    asked: list[bytes] = []

    async def visit(name: str, claim: Any) -> None:
        if name == "claim" and isinstance(claim, Claim) and claim.only is not None:
            asked.append(claim.only)
            if claim.only == bad.id_bytes:
                raise unread()

    setattr(store, "after" if answered else "before", visit)
    worker.worker.claimer.undue([bad.id_bytes, good.id_bytes])
    assert await (await client.start(at_once, "due")).result(LIMIT) == "due"
    await until(lambda: len(asked) >= 2)
    assert asked == [bad.id_bytes, good.id_bytes]
    for one in (bad, good):
        await one.signal("go", "gone")
        assert await one.result(LIMIT) == "gone"


@pytest.mark.parametrize("cached", [True, False])
async def test_a_process_at_rest_is_claimed_when_the_store_is_back(opened: Open, cached: bool) -> None:
    client, _ = await opened(workflows=[rests])
    worker, store = await opened(work=True, workflows=[rests])
    handle = await client.start(rests)
    await until_row(client, handle.id, lambda row: row.awaiting == "signal go" and row.owner is None)
    assert worker.worker is not None
    asked: list[bytes] = []

    async def visit(name: str, claim: Any) -> None:
        if name == "claim" and isinstance(claim, Claim) and (claim.only or claim.resting):
            asked.extend([claim.only] if claim.only else claim.among)
            if len(asked) == 1:
                raise StoreUnavailable("away")

    store.before = visit
    await until(lambda: worker.worker is not None and not worker.worker.scheduler.instances)
    if not cached:
        worker.worker.scheduler.cache.evict(handle.id_bytes)
    worker.worker.claimer.undue([handle.id_bytes])
    await until(lambda: len(asked) == 2)
    assert asked == [handle.id_bytes] * 2


async def test_what_is_due_is_claimed_however_much_is_claimed_that_is_not(opened: Open) -> None:
    client, _ = await opened(workflows=[at_once])
    worker, store = await opened(work=True, workflows=[at_once])
    assert worker.worker is not None
    claimer = worker.worker.claimer
    asked = 0

    async def visit(name: str, claim: Any) -> None:
        nonlocal asked
        if name == "claim" and isinstance(claim, Claim) and claim.only is not None:
            asked += 1
            claimer.undue([claim.only])  # as soon as one is claimed there is another

    store.before = visit
    claimer.undue([bytes(16)])
    await until(lambda: asked > 10)
    assert await (await client.start(at_once, "due")).result(LIMIT) == "due"


def test_the_wait_grows_up_to_a_bound_and_a_look_that_succeeds_asks_for_more_again() -> None:
    asking = claim_portion.Portion()
    tried = []
    while (rows := asking.rows) > 1:
        tried.append(rows)
        assert asking.failed(rows, MemoryError()) == 0.0
    assert tried == [500, 250, 125, 62, 31, 15, 7, 3]
    assert [asking.failed(1, MemoryError()) for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    for _ in range(9):
        asking.succeeded()
    assert asking.rows == limits.CLAIM_ROWS
    asking.took(400, part=0.7)
    asking.succeeded()
    assert asking.rows == 200, "most of the lease was over when the answer came"
    asking.took(200, part=0.4)
    asking.succeeded()
    assert asking.rows == 200, "twice as many would take most of it again"
    asking.took(0, part=0.9)
    asking.succeeded()
    assert asking.rows == 200, "it was not slow because of what it had read"
    asking.took(200, part=0.1)
    asking.succeeded()
    assert asking.rows == 400
    assert not claim_portion.is_of_what_was_read(StoreUnavailable("away"))


async def test_a_backlog_is_shared_among_the_workers_that_live(opened: Open) -> None:
    client, _ = await opened(workflows=[at_once])
    first, store = await opened(work=True, workflows=[at_once])
    second, _ = await opened(work=True, workflows=[at_once])
    assert first.worker is not None and second.worker is not None
    await until(lambda: first.worker is not None and first.worker.context.offers())
    store.calls.clear()
    handles = await client.start_many(at_once, [(str(number),) for number in range(600)])
    assert await asyncio.gather(*(handle.result(LIMIT) for handle in handles)) == [str(one) for one in range(600)]
    asked = [claim.limit for door, claim in store.calls if door == "claim" and claim.limit]
    assert asked and max(asked) <= limits.CLAIM_ROWS // 2
    await second.close(0)
    await until(lambda: first.worker is not None and not first.worker.context.offers())
    store.calls.clear()
    first.worker.claimer.wake()
    await until(lambda: any(door == "claim" for door, _ in store.calls))
    assert max(claim.limit for door, claim in store.calls if door == "claim") == limits.CLAIM_ROWS
