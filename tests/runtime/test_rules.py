"""The rules of the protocol that the runtime must keep; each test plants the failure of the wrong form."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import receive, workflow
from perdure.clock import SECOND, Computer
from perdure.engine import Engine
from perdure.errors import ProcessCancelled
from perdure.kernel.commit import Start
from perdure.kernel.process import Process, Status
from perdure.kernel.retry import Retry
from perdure.runtime.options import WorkerOptions
from perdure.store.base import Overdue, Search
from perdure.store.url import store_for
from perdure.testing.faults import FaultyStore, Gate, Outage
from tests.runtime.conftest import LIMIT, Open, until

done: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


@step(retry=Retry.NONE)
async def note(what: str) -> str:
    done.append((what, attempt().idempotency_key))
    return what


@workflow
async def one(what: str) -> str:
    return await note(what)


@workflow
async def three() -> str:
    return await note("1") + await note("2") + await note("3")


def what_was_done() -> list[str]:
    return [what for what, _ in done]


# -- rule 5 and 16 ----------------------------------------------------------------------------


async def test_rule_05_a_commit_with_an_unknown_outcome_is_sent_again_and_counts_once(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[three])
    outage = Outage("start", "commit", after=True).upon(store)
    outage.away = True
    starting = asyncio.create_task(engine.start(three))
    await until(lambda: outage.failed >= 2)
    outage.away = False
    handle = await starting
    outage.away = True
    await until(lambda: outage.failed >= 4)
    outage.away = False
    assert await handle.result(LIMIT) == "123"
    assert what_was_done() == ["1", "2", "3"]
    assert [event.number for event in await handle.history()] == [1, 2, 3, 4]
    assert engine.metrics()["commits_resent"] >= 2


async def test_rule_16_step_one_is_released_only_after_the_insert_that_holds_the_first_turn(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[one])
    gate = store.after = Gate("start")
    starting = asyncio.create_task(engine.start(one, "x"))
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    assert done == []
    gate.open.set()
    handle = await starting
    assert await handle.result(LIMIT) == "x"
    starts = [argument for name, argument in store.calls if name == "start"]
    row = starts[0][0].process
    assert (row.owner is not None, row.opened_at is not None, row.token) == (True, True, 1)
    assert engine.metrics()["claims"] == 0, "the insert made it ours"


# -- rule 17 ---------------------------------------------------------------------------


@step(retry=Retry.NONE)
async def pair(n: int) -> int:
    done.append((f"pair {n}", ""))
    return n


@workflow
async def forked() -> str:
    first, second = pair(1), pair(2)
    total = await first
    await note(f"after {total}")
    total += await second
    await note(f"end {total}")
    return "done"


async def test_rule_17_when_a_commit_is_refused_every_later_turn_goes_with_it(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[forked])
    gate = store.before = Gate("commit")
    handle = await engine.start(forked)
    await asyncio.wait_for(gate.reached.wait(), LIMIT)
    # Another takes the row while our commit is under way: it is refused, and so is all that ran ahead of it.
    thief, _ = await opened()
    await thief.process(handle.id_bytes).terminate(who="thief")
    gate.open.set()
    with pytest.raises(ProcessCancelled):
        await thief.process(handle.id_bytes).result(timeout=LIMIT)
    await until(lambda: not engine.metrics()["in_hand"])
    assert engine.metrics()["commits_refused"] == 1
    assert [what for what in what_was_done() if what.startswith(("after", "end"))] == []


# -- rule 11, 12, 14 --------------------------------------------------------------------------

gates: dict[str, asyncio.Event] = {}


@step(retry=Retry.NONE, timeout=600)
async def waiting(name: str) -> str:
    done.append((name, ""))
    await gates[name].wait()
    return name


@workflow
async def waits(name: str) -> str:
    return await waiting(name)


async def test_rule_11_an_ended_incarnation_drops_everything_and_goes_on_under_a_new_id(opened: Open) -> None:
    gates["a"] = asyncio.Event()
    options = WorkerOptions(lease_seconds=10, beat_seconds=0.5)
    engine, store = await opened(work=True, workflows=[waits], options=options)
    before = engine.worker.incarnation.id
    handle = await engine.start(waits, "a")
    await until(lambda: done)
    [held] = engine.worker.scheduler.instances.values()
    assert await store.retire(before, None, died=False)
    await until(lambda: engine.worker.incarnation.id != before)
    assert held.gone
    gates["a"].set()
    assert await handle.result(LIMIT) == "a"
    assert engine.worker.incarnation.id != before
    assert len(done) == 2


async def test_rule_11_what_is_heard_late_of_an_ended_incarnation_does_not_end_the_next_one(opened: Open) -> None:
    gates["a"] = asyncio.Event()
    engine, store = await opened(work=True, workflows=[waits], options=WorkerOptions(beat_seconds=0.05))
    client, _ = await opened()
    loops = engine.worker.heartbeat.loop, engine.worker.claimer.loop
    for loop in loops:
        await loop.stop()
    before = engine.worker.incarnation.id
    await store.retire(before, None, died=False)
    gate = store.after = Gate("beat", lambda beat: beat.worker == before)
    loops[0].start()
    await asyncio.wait_for(gate.reached.wait(), LIMIT)  # a beat was refused, and its answer is on its way
    loops[1].start()
    handle = await client.start(waits, "a")
    await until(lambda: engine.worker.incarnation.id != before and done)
    gate.open.set()
    beats = len(store.calls)
    await until(lambda: any(name == "beat" for name, _ in store.calls[beats:]))
    gates["a"].set()
    assert await handle.result(LIMIT) == "a"
    assert (engine.metrics()["incarnations_renewed"], done) == (1, [("a", "")])


async def test_rule_11_a_start_as_owned_by_an_ended_incarnation_stores_nothing(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[one])
    ended = engine.worker.incarnation.id
    await engine.worker.heartbeat.loop.stop()
    await engine.worker.claimer.loop.stop()
    await store.retire(ended, None, died=False)
    with pytest.raises(Exception, match="nothing was started"):
        await engine.start(one.options(key="k"), "x")
    assert await store.search(Search(kind="one")) == []
    assert done == []


async def test_rule_12_a_worker_whose_lock_is_free_at_two_looks_is_dead_and_at_one_look_is_not(store_url: str) -> None:
    from perdure.kernel.worker import WorkerRow
    from perdure.runtime.sweeps import worker_dead

    machine = Computer()
    async with Engine(store_url, work=True, workflows=[one]) as engine:
        await engine.worker.supervisor.stop()  # it looks for the dead too, and could be the first
        other = store_for(store_url, machine)
        await other.open()
        row = await other.enlist(WorkerRow(machine.new_id(), "doomed"), 60_000_000)
        assert row.locked
        looks = worker_dead.Looks()
        assert await worker_dead.sweep(engine.worker.context, looks) == 0
        assert looks.free == {}
        await other.close()  # its lock is free from now on, though it has not said goodbye
        assert await worker_dead.sweep(engine.worker.context, looks) == 0
        assert list(looks.free) == [row.id]
        assert await worker_dead.sweep(engine.worker.context, looks) == 1
        ended = {worker.id: worker for worker in await engine.store.workers(ended=True)}
        assert ended[row.id].ended_at is not None
        assert ended[row.id].died


async def test_rule_14_no_lease_is_renewed_past_the_process_deadline(opened: Open) -> None:
    gates["b"] = asyncio.Event()
    options = WorkerOptions(lease_seconds=0.9, beat_seconds=0.05)
    engine, store = await opened(work=True, workflows=[waits], options=options)
    worker = engine.worker
    await worker.supervisor.stop()  # it would end the process at its deadline,
    await worker.heartbeat.guard.stop()  # and the guard would let go of it
    handle = await engine.start(waits.options(deadline=1.5), "b")
    deadline = (await engine.row(handle.id)).deadline

    def renewed() -> list[Any]:
        return [beat for name, beat in store.calls if name == "beat" and beat.renewals]

    await until(lambda: worker.time.now() > deadline)
    assert renewed(), "the lease was renewed while the deadline had not passed"
    store.calls.clear()
    await until(lambda: [name for name, _ in store.calls].count("beat") >= 3)
    assert renewed() == []
    worker.supervisor.start()
    with pytest.raises(Exception, match="deadline"):
        await handle.result(LIMIT)
    assert (await handle.status()).status is Status.FAILED


# -- the store away ---------------------------------------------------------------------------


async def test_while_the_store_is_away_steps_stop_before_their_lease_ends_and_work_resumes_by_itself(
    opened: Open,
) -> None:
    gates["c"] = asyncio.Event()
    options = WorkerOptions(lease_seconds=1.5, beat_seconds=0.05)
    engine, store = await opened(work=True, workflows=[waits], options=options)
    outage = Outage().upon(store)
    handle = await engine.start(waits, "c")
    await until(lambda: done)
    outage.away = True
    await until(lambda: not engine.metrics()["in_hand"])
    assert engine.metrics()["leases_lost"] == 1
    outage.away = False
    await until(lambda: len(done) == 2)
    gates["c"].set()
    assert await handle.result(LIMIT) == "c"


async def test_rule_05_rows_claimed_by_a_lost_answer_are_freed_again(opened: Open) -> None:
    client, _ = await opened()
    handle = await client.start(one, "d")
    lost = {"claims": 0}

    async def lose(name: str, argument: Any) -> None:
        if name == "claim" and not lost["claims"]:
            lost["claims"] += 1
            from perdure.errors import StoreUnavailable

            raise StoreUnavailable("the answer is lost")

    machine = Computer()
    store = FaultyStore(store_for(client.store.url, machine))
    store.after = lose
    async with Engine(client.store.url, store=store, machine=machine, work=True, workflows=[one]) as worker:
        assert await handle.result(LIMIT) == "d"
        owned = Search(overdue=Overdue.OWNED, owner=worker.worker.incarnation.id)
        assert await store.search(owned) == []
        assert worker.telemetry.counters["takeovers"] == 0, "freed at once, and not when its lease lapsed"
    assert lost["claims"] == 1


async def test_rule_05_a_lost_claim_is_freed_however_many_rows_its_worker_holds(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 3)
    gates["d"] = asyncio.Event()
    engine, _ = await opened(work=True, workflows=[waits])
    worker = engine.worker
    assert worker is not None
    for _ in range(10):
        await engine.start(waits, "d")
    await until(lambda: len(done) == 10)
    lost = Process(engine.machine.new_id(), "one", None, b'["e"]', owner=worker.incarnation.id)
    await engine.store.start([Start(lost, lease=20 * SECOND)])
    assert await worker.reconcile() == 1
    [row] = await engine.store.search(Search(ids=(lost.id,)))
    assert row.owner is None
    assert await worker.reconcile() == 0
    assert engine.metrics()["in_hand"] == 10
    gates["d"].set()


def later(machine: Computer, patch: pytest.MonkeyPatch) -> None:
    """Two seconds pass for this machine alone, at once: longer than a lease."""
    patch.setattr(machine, "monotonic", lambda: Computer.monotonic(machine) + 2.0)


async def test_a_claim_that_is_answered_after_its_lease_begins_nothing(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = await opened()
    handle = await client.start(one, "e")
    machine, slow = Computer(), Gate("claim")
    store = FaultyStore(store_for(client.store.url, machine))
    store.after = slow
    options = WorkerOptions(lease_seconds=1.0, beat_seconds=0.05)
    async with Engine(
        client.store.url, store=store, machine=machine, work=True, workflows=[one], options=options
    ) as worker:
        await slow.reached.wait()
        later(machine, monkeypatch)
        slow.open.set()
        assert await handle.result(LIMIT) == "e"
        assert worker.metrics()["leases_lost"] > 0 and what_was_done() == ["e"]


async def test_a_start_that_is_answered_after_its_lease_begins_nothing_before_it_is_claimed(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Gate("start")
    engine, store = await opened(
        work=True, workflows=[one], options=WorkerOptions(lease_seconds=1.0, beat_seconds=0.05)
    )
    store.after = slow
    starting = asyncio.create_task(engine.start(one, "f"))
    await slow.reached.wait()
    later(engine.machine, monkeypatch)
    slow.open.set()
    assert await (await starting).result(LIMIT) == "f"
    assert engine.metrics()["leases_lost"] > 0 and what_was_done() == ["f"]


# -- rule 21 and 22 ---------------------------------------------------------------------------

bank = {"open": False}


@step(retry=Retry.NONE)
async def pay(n: int) -> int:
    done.append((f"pay {n}", attempt().idempotency_key))
    if n == 2 and not bank["open"]:
        raise ConnectionError("closed")
    return n


@workflow
async def paying() -> int:
    return await pay(1) + await pay(2) + await pay(3)


async def test_rule_21_keys_carry_the_run_in_which_the_step_was_first_asked_for(opened: Open) -> None:
    bank["open"] = False
    engine, _ = await opened(work=True, workflows=[paying])
    handle = await engine.start(paying)
    with pytest.raises(Exception, match="closed"):
        await handle.result(LIMIT)
    bank["open"] = True
    await handle.retry()
    assert await handle.result(LIMIT) == 6
    runs = [(what, key.split("/")[1]) for what, key in done]
    assert runs == [("pay 1", "1"), ("pay 2", "1"), ("pay 2", "1"), ("pay 3", "2")]


@workflow
async def forgotten() -> None:
    await receive("never")


async def test_rule_22_a_process_whose_code_is_gone_can_still_be_terminated(opened: Open) -> None:
    starter, _ = await opened(work=True, workflows=[forgotten])
    handle = await starter.start(forgotten)
    await starter.close()
    client, _ = await opened()
    await client.process(handle.id_bytes).terminate(who="anna", why="its code is gone")
    row = await client.row(handle.id_bytes)
    assert (row.status, row.token) == (Status.CANCELLED, 2)
