"""Starting and signalling in a transaction of the caller's own: with his commit, or never."""

from __future__ import annotations

import asyncio

import pytest

from perdure.engine import Engine
from perdure.errors import (
    InvalidInput,
    InvalidKey,
    KeyConflict,
    PayloadError,
    PayloadTooLarge,
    ProcessFailed,
    ProcessNotFound,
    UnknownKind,
)
from perdure.kernel.message import SendVerdict
from perdure.limits import KEY_BYTES, PAYLOAD_BYTES
from tests.transactions.caller import done
from tests.transactions.conftest import EVERY_STORE, Call
from tests.transactions.shop import bill, greet, told

LIMIT = 30.0


async def test_a_process_started_within_a_transaction_runs_once_it_has_committed(engine: Engine, call: Call) -> None:
    async with call() as caller:
        await caller.run("INSERT INTO sale VALUES (7)")
        handle = await done(engine.within(caller.connection).start(bill.options(key="sale/7", attributes={"n": 7}), 7))
        assert handle.created
        assert await engine.count() == {}
        with pytest.raises(ProcessNotFound):
            await handle.result(timeout=LIMIT)
        await caller.end(commit=True)
    assert await handle.result(timeout=LIMIT) == "bill 7"
    assert (await engine.row(handle.id)).attributes == b'{"n":7}'


async def test_of_a_transaction_rolled_back_nothing_ever_happened(engine: Engine, call: Call) -> None:
    async with call() as caller:
        await caller.run("INSERT INTO sale VALUES (7)")
        handle = await done(engine.within(caller.connection).start(bill.options(key="sale/7"), 7))
        await caller.end(commit=False)
    with pytest.raises(ProcessNotFound):
        await handle.result(timeout=LIMIT)
    assert await engine.count() == {}
    async with call() as caller:
        await caller.run("INSERT INTO sale VALUES (7)")
        await caller.end(commit=True)
    again = await engine.start(bill.options(key="sale/7"), 8)
    assert again.created


async def test_a_key_is_answered_as_outside_of_a_transaction(engine: Engine, call: Call) -> None:
    before = await engine.start(bill.options(key="old"), 1)
    assert await before.result(LIMIT) == "bill 1"
    async with call() as caller:
        inside = engine.within(caller.connection)
        known = await done(inside.start(bill.options(key="old"), 1))
        assert not known.created
        assert known.id == before.id
        with pytest.raises(KeyConflict, match=f"'old' .* belongs to process {before.id}"):
            await done(inside.start(bill.options(key="old"), 2))
        first = await done(inside.start(bill.options(key="new"), 3))
        second = await done(inside.start(bill.options(key="new"), 3))
        assert (first.created, second.created, first.id) == (True, False, second.id)
        with pytest.raises(KeyConflict):
            await done(inside.start(bill.options(key="new"), 4))
        await caller.end(commit=True)
    assert await second.result(LIMIT) == "bill 3"
    assert not (await engine.start(bill.options(key="new"), 3)).created


@EVERY_STORE
async def test_a_key_kept_after_its_process_was_pruned_is_known_in_the_callers_transaction(
    engine: Engine, call: Call
) -> None:
    old = await engine.start(bill.options(key="old"), 1)
    await old.result(LIMIT)
    assert (await engine.store.prune(0, 10**12, 10)).processes == 1
    async with call() as caller:
        await caller.run("SAVEPOINT mine")
        inside = engine.within(caller.connection)
        known = await done(inside.start(bill.options(key="old"), 1))
        assert (known.created, known.id) == (False, old.id)
        with pytest.raises(KeyConflict):
            await done(inside.start(bill.options(key="old"), 2))
        await caller.end(commit=True)
    assert await engine.count() == {}


@EVERY_STORE
async def test_a_reply_address_is_told_of_a_process_that_was_started_within_a_transaction(
    engine: Engine, call: Call
) -> None:
    receiver = await engine.start(told)
    async with call() as caller:
        await caller.run("INSERT INTO sale VALUES (7)")
        inside = engine.within(caller.connection)
        with pytest.raises(InvalidInput, match=r"reply_to=await engine\.webhook\(url\)"):
            await done(inside.start(bill.options(reply_to="https://example.org/hook"), 7))
        handle = await done(inside.start(bill.options(reply_to=receiver), 7))
        await caller.end(commit=True)
    assert await receiver.result(LIMIT) == ["received", "completed"]
    assert (await handle.status()).reply_to == receiver.id


@EVERY_STORE
async def test_a_process_started_within_a_transaction_has_the_priority_that_was_asked_for(
    engine: Engine, call: Call
) -> None:
    async with call() as caller:
        inside = engine.within(caller.connection)
        urgent = await done(inside.start(bill.options(key="urgent", priority=0), 1))
        usual = await done(inside.start(bill.options(key="usual"), 2))
        await caller.end(commit=True)
    assert [(await engine.row(handle.id)).priority for handle in (urgent, usual)] == [0, 4]


async def test_what_is_refused_at_the_door_leaves_the_transaction_as_it_was(engine: Engine, call: Call) -> None:
    async with call() as caller:
        await caller.run("INSERT INTO sale VALUES (7)")
        inside = engine.within(caller.connection)
        for refusal, arguments, options in (
            (UnknownKind, ("transactions/none",), {}),
            (InvalidKey, (bill, 1), {"key": "x" * (KEY_BYTES + 1)}),
            (InvalidInput, (bill, 1), {"deadline": -1}),
            (InvalidInput, (bill, 1), {"delay": 5}),
            (InvalidInput, (bill, 1), {"attributes": {"deep": {}}}),
            (PayloadError, (bill, "seven"), {}),
            (PayloadTooLarge, ("transactions/bill", "x" * (PAYLOAD_BYTES + 1)), {}),
        ):
            flow, *rest = arguments
            startable = flow.options(**options) if options else flow
            with pytest.raises(refusal):
                await done(inside.start(startable, *rest))
        with pytest.raises(InvalidKey):
            await done(inside.signal("no id", "name"))
        with pytest.raises(ProcessNotFound):
            await done(inside.signal(bytes(16), "name"))
        handle = await done(inside.start(bill, 7))
        await caller.end(commit=True)
    assert await handle.result(LIMIT) == "bill 7"
    assert await engine.count() == {"transactions/bill": {"completed": 1}}


async def test_a_signal_is_heard_when_the_transaction_has_committed_and_else_never(engine: Engine, call: Call) -> None:
    handle = await engine.start(greet)
    async with call() as caller:
        assert await done(engine.within(caller.connection).signal(handle.id, "name", "Eve")) is SendVerdict.DELIVERED
        await caller.end(commit=False)
    async with call() as caller:
        inside = engine.within(caller.connection)
        assert await done(inside.signal(handle.id, "name", "Ann", key="k")) is SendVerdict.DELIVERED
        assert await done(inside.signal(handle.id, "name", "Bob", key="k")) is SendVerdict.DUPLICATE
        await caller.end(commit=True)
    assert await handle.result(LIMIT) == "hello Ann"
    async with call() as caller:
        inside = engine.within(caller.connection)
        assert await done(inside.signal(handle.id, "name", "Joe")) is SendVerdict.FINISHED
        await caller.end(commit=True)


async def test_one_transaction_may_start_a_process_and_signal_it(engine: Engine, call: Call) -> None:
    async with call() as caller:
        inside = engine.within(caller.connection)
        handle = await done(inside.start(greet))
        await done(inside.signal(handle.id, "name", "Ann", who="Eve", why="to see"))
        await caller.end(commit=True)
    assert await handle.result(LIMIT) == "hello Ann"


@EVERY_STORE
async def test_what_lies_behind_a_savepoint_goes_back_with_it(engine: Engine, call: Call) -> None:
    async with call() as caller:
        await caller.run("INSERT INTO sale VALUES (7)")
        inside = engine.within(caller.connection)
        kept = await done(inside.start(bill, 1))
        await caller.run("SAVEPOINT mine")
        gone = await done(inside.start(bill, 2))
        await caller.run("ROLLBACK TO SAVEPOINT mine")
        await caller.run("SAVEPOINT other")
        late = await done(inside.start(bill.options(key="late"), 3))
        await caller.run("RELEASE SAVEPOINT other")
        await caller.end(commit=True)
    assert await kept.result(LIMIT) == "bill 1"
    assert await late.result(LIMIT) == "bill 3"
    with pytest.raises(ProcessNotFound):
        await gone.result(timeout=LIMIT)


@EVERY_STORE
async def test_a_deadline_counts_from_the_start(engine: Engine, call: Call) -> None:
    async with call() as caller:
        handle = await done(engine.within(caller.connection).start(greet.options(deadline=0.2)))
        await caller.end(commit=True)
    with pytest.raises(ProcessFailed):
        await handle.result(timeout=LIMIT)
    row = await engine.row(handle.id)
    assert row.deadline is not None
    assert 0 <= row.deadline - row.created_at - 200_000 < 100_000


@EVERY_STORE
async def test_workers_are_woken_by_the_commit(way: tuple[str, Call], call: Call) -> None:
    async with Engine(way[0], migrate=True) as client:
        woken = asyncio.Event()
        client.store.watch(lambda news: woken.set() if news.any_due else None)
        async with call() as caller:
            handle = await done(client.within(caller.connection).start(bill, 1))
            await caller.end(commit=True)
        await asyncio.wait_for(woken.wait(), LIMIT)
        assert await handle.result(LIMIT) == "bill 1"


async def test_a_start_within_a_transaction_may_bring_a_signal(engine: Engine, call: Call) -> None:
    async with call() as caller:
        inside = engine.within(caller.connection)
        handle = await done(inside.start(greet.options(key="new", signal=("name", "Ann", "once"))))
        assert (handle.created, handle.sent) == (True, SendVerdict.DELIVERED)
        again = await done(inside.start(greet.options(key="new", signal=("name", "Ann", "once"))))
        assert (again.created, again.sent) == (False, SendVerdict.DUPLICATE)
        await caller.end(commit=True)
    assert await handle.result(timeout=LIMIT) == "hello Ann"
    async with call() as caller:
        late = await done(engine.within(caller.connection).start(greet.options(key="new", signal=("name", "Bob"))))
        assert (late.id, late.sent) == (handle.id, SendVerdict.FINISHED)
        await caller.end(commit=False)
    assert (await engine.row(handle.id)).inbox == 1
