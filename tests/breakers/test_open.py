"""A breaker that is open or half-open: no attempt but the probe, nothing in a history, and all go on afterwards."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from perdure import Retry, limits, step, testing, workflow
from perdure.authoring.step import Step
from perdure.clock import SECOND
from perdure.errors import DefinitionError, Permanent, ProcessFailed, StepCrashed, Unavailable
from perdure.kernel.event import EventType
from perdure.runtime.steps.circuits import blames, telling
from perdure.runtime.steps.isolated.protocol import StepRaised
from perdure.store.base import Search
from tests.breakers.bank import (
    ALL,
    BANK,
    EAGER,
    HOUR,
    MANY,
    Refused,
    all_rest,
    ask,
    calls,
    circuit_of,
    circuit_when,
    elsewhere,
    pay,
    pay_in_queue,
    paying,
    paying_in_queue,
    paying_in_thread,
    paying_in_time,
    paying_once,
    paying_quickly,
    trouble,
)
from tests.runtime.conftest import LIMIT, Open, until


@pytest.mark.parametrize("flow", [paying, paying_in_thread])
async def test_while_it_is_open_no_attempt_is_made_and_a_step_waits_with_nothing_in_its_history(
    opened: Open, caplog: pytest.LogCaptureFixture, flow: Any
) -> None:
    engine, _ = await opened(work=True, workflows=ALL)
    with caplog.at_level(logging.WARNING, "perdure.breaker"):
        first = await engine.start(flow, 0)
        await until(lambda: engine.metrics()["attempts_barred"] >= 1)
        later = await engine.start_many(flow, [(number,) for number in range(1, MANY)])
        await all_rest(engine, MANY)
    assert calls == {0: 3}
    circuit = await circuit_of(engine)
    assert (circuit.state, circuit.opened, circuit.reason) == ("open", 1, "3 attempts have failed: ConnectionError")
    failed = [one for one in await first.history() if one.type is EventType.ATTEMPT_FAILED]
    assert len(failed) == 3
    for handle in later:
        assert {event.type for event in await handle.history()}.isdisjoint({EventType.ATTEMPT_FAILED})
    view = await first.status()
    assert view.waiting == "it waits, as breaker bank is open (3 attempts have failed: ConnectionError)"
    assert view.mover == "breaker" and view.since and view.until and (view.until - view.since).total_seconds() == HOUR
    [record] = [record for record in caplog.records if record.name == "perdure.breaker"]
    assert record.getMessage() == ("breaker bank is open (3 attempts have failed: ConnectionError); it was closed")
    assert vars(record).items() >= {"breaker": "bank", "state": "open", "was": "closed"}.items()
    assert engine.metrics()["breakers_changed"] == 1


async def test_one_probe_closes_it_and_all_go_on(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BREAKER_LOOK_SECONDS", 0.01)
    engine, _ = await opened(work=True, workflows=ALL)
    handles = await engine.start_many(paying_quickly, [(number,) for number in range(MANY)])
    await until(lambda: engine.metrics()["attempts_barred"] >= MANY)
    trouble.clear()
    assert [await handle.result(LIMIT) for handle in handles] == list(range(MANY))
    circuit = await circuit_when(engine, lambda circuit: circuit.closed)
    assert (circuit.reason, circuit.failures) == ("a probe was served", 0)


async def test_while_the_dependency_stays_down_only_probes_are_made(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BREAKER_LOOK_SECONDS", 0.01)
    engine, _ = await opened(work=True, workflows=ALL)
    handles = await engine.start_many(paying_quickly, [(number,) for number in range(MANY)])
    circuit = await circuit_when(engine, lambda circuit: circuit.opened >= 4)
    assert circuit.reason in ("a probe has failed: ConnectionError", "12 attempts have failed: ConnectionError")
    made, before = calls.total(), circuit.opened
    circuit = await circuit_when(engine, lambda circuit: circuit.opened > before)  # the probe under way has ended
    assert made <= MANY + circuit.opened, "each probe that has ended has opened it again"
    trouble.clear()
    assert [await handle.result(LIMIT) for handle in handles] == list(range(MANY))


async def test_a_step_that_runs_at_most_once_begins_only_when_its_breaker_lets_it_and_may_be_the_probe(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BREAKER_LOOK_SECONDS", 0.01)
    engine, _ = await opened(work=True, workflows=ALL)
    for number in range(3):
        with pytest.raises(ProcessFailed):
            await (await engine.start(paying_once, number)).result(LIMIT)
    await circuit_when(engine, lambda circuit: not circuit.closed)
    trouble.clear()
    handles = await engine.start_many(paying_once, [(number,) for number in range(3, MANY)])
    assert [await handle.result(LIMIT) for handle in handles] == list(range(3, MANY))
    assert calls == dict.fromkeys(range(MANY), 1)
    circuit = await circuit_when(engine, lambda circuit: circuit.closed)
    assert circuit.reason == "a probe was served"
    for handle in handles:
        begun = [one for one in await handle.history() if one.type is EventType.ATTEMPT_BEGUN]
        assert len(begun) == 1


async def test_all_workers_share_it(opened: Open) -> None:
    one, _ = await opened(work=True, workflows=ALL)
    handle = await one.start(paying, 0)
    await until(lambda: one.metrics()["attempts_barred"] >= 1)
    two, _ = await opened(work=True, workflows=ALL)
    later = await two.start(paying, 1)
    await until(lambda: two.metrics()["attempts_barred"] >= 1)
    assert calls == {0: 3}, "a worker looks before its first attempt"
    assert (await later.status()).status == (await handle.status()).status == "running"


async def test_a_worker_that_knows_it_as_closed_looks_again_before_an_attempt(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BREAKER_LOOK_SECONDS", 0.0)
    one, _ = await opened(work=True, workflows=ALL)
    two, _ = await opened(work=True, workflows=ALL)
    trouble.clear()
    assert await (await two.start(paying, 0)).result(LIMIT) == 0
    trouble[:] = [ConnectionError()]
    await one.start(paying, 1)
    await until(lambda: one.metrics()["attempts_barred"] >= 1)
    await two.start(paying, 2)
    await until(lambda: two.metrics()["attempts_barred"] >= 1)
    assert calls == {0: 1, 1: 3}


async def test_two_workers_count_together(opened: Open) -> None:
    one, _ = await opened(work=True, workflows=ALL)
    two, _ = await opened(work=True, workflows=ALL)
    trouble[:] = [Refused("no money")]
    for engine in (one, two):  # both know that it is closed
        with pytest.raises(ProcessFailed):
            await (await engine.start(elsewhere, 9, "shop")).result(LIMIT)
    trouble[:] = [ConnectionError()]
    single = Retry(attempts=1)
    pay_once = Step(ask, name="pay_once", retry=single, breaker=BANK)

    @workflow
    async def paying_once(number: int) -> int:
        return await pay_once(number)

    three, _ = await opened(work=True, workflows=[paying_once])
    four, _ = await opened(work=True, workflows=[paying_once])
    for engine in (three, four, three):
        with pytest.raises(ProcessFailed):
            await (await engine.start(paying_once, 1)).result(LIMIT)
    circuit = await circuit_when(one, lambda circuit: circuit.state == "open")
    assert circuit.reason == "3 attempts have failed: ConnectionError"


@pytest.mark.parametrize("answer", [Refused("no money"), ZeroDivisionError(), DefinitionError("not so")])
async def test_an_answer_and_what_another_attempt_cannot_cure_is_no_failure_of_the_dependency(
    opened: Open, answer: Exception
) -> None:
    engine, _ = await opened(work=True, workflows=ALL)
    trouble[:] = [answer]
    for number in range(4):
        with pytest.raises(ProcessFailed):
            await (await engine.start(paying, number)).result(LIMIT)
    assert await engine.breakers.list() == []


def test_what_a_hard_step_raised_in_its_cell_counts_as_it_would_here() -> None:
    def raised(error: BaseException) -> StepRaised:
        return StepRaised(pay.failure(error, 1), pay.retry.retries(error))

    for error in (ConnectionError(), TimeoutError(), Unavailable("busy"), Refused(), ZeroDivisionError(), Permanent()):
        assert blames(pay, error) is blames(pay, raised(error)) is isinstance(error, OSError | Unavailable), error
    assert telling(raised(Unavailable("busy", retry_after=60))) == 0, "how long is not told across"
    assert telling(raised(ConnectionError())) is None
    assert not blames(pay, StepCrashed("its cell was killed")), "the cell has failed, not the bank"
    assert blames(pay, ExceptionGroup("both", [Refused(), ConnectionError()]))


async def test_an_answer_that_tells_opens_it_at_once_for_as_long_as_it_says(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=ALL)
    trouble[:] = [Unavailable("too many requests", retry_after=1800)]
    await engine.start(paying, 1)
    await until(lambda: engine.metrics()["attempts_barred"] >= 1)
    assert calls == {1: 1}
    circuit = await circuit_of(engine)
    assert circuit.reason == "it cannot serve: Unavailable"
    assert (circuit.until or 0) - circuit.since == HOUR * SECOND, "no shorter than open_for"


async def test_an_attempt_over_its_deadline_is_a_failure_of_the_dependency(opened: Open) -> None:
    hang = asyncio.Event()

    @step(name="hangs", timeout=0.02, retry=EAGER, breaker=BANK)
    async def hangs() -> None:
        await hang.wait()

    @workflow
    async def hanging() -> None:
        await hangs()

    engine, _ = await opened(work=True, workflows=[hanging])
    await engine.start(hanging)
    await until(lambda: engine.metrics()["attempts_barred"] >= 1)
    assert (await circuit_of(engine)).reason == "3 attempts have failed: TimeoutError"
    assert engine.metrics()["step_timeouts"] == 3


async def test_the_total_of_a_policy_ends_the_wait_with_the_last_error() -> None:
    async with testing.engine(workflows=ALL) as engine:
        began = engine.now()
        handle = await engine.start(paying_in_time, 1)
        with pytest.raises(ProcessFailed, match="secret"):
            await handle.result(LIMIT)
        assert 50 <= (engine.now() - began).total_seconds() < 60
    assert calls == {1: 3}


async def test_a_task_that_waits_for_a_breaker_holds_no_place_of_its_queue(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=ALL)
    await engine.queues.limit("tills", concurrency=1)
    await engine.breakers.open("bank", who="ana", why="it moves")
    await engine.start(paying_in_queue, 1)
    await until(lambda: engine.metrics()["attempts_barred"] >= 1)
    await all_rest(engine, 2)
    assert (await engine.queues.list())[0].running == 0
    [task] = await engine.list(Search(kind="@tills"))
    assert task.waiting == "it waits, as breaker bank is kept open by ana: it moves"
    assert not calls


async def test_a_breaker_may_differ_from_place_to_place(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=ALL)
    await engine.start(elsewhere, 1, "first bank")
    await until(lambda: engine.metrics()["attempts_barred"] >= 1)
    trouble.clear()
    assert await (await engine.start(elsewhere, 2, "second bank")).result(LIMIT) == 2
    assert [one.name for one in await engine.breakers.list()] == ["first bank"]
    with pytest.raises(DefinitionError, match="write breaker= at its definition"):
        pay_in_queue.options(breaker=BANK)
    with pytest.raises(DefinitionError, match=r'Write bank = Breaker\("bank"\)'):
        step(breaker="bank")(ask)  # type: ignore[arg-type]


async def test_an_engine_of_a_test_skips_the_wait() -> None:
    async with testing.engine(workflows=ALL) as engine:
        began = engine.now()
        handle = await engine.start(paying, 1)
        while (await handle.status()).events < 3:
            await engine.sleep(0.001)
        waiting = asyncio.create_task(handle.result())
        await until(lambda: engine.metrics()["breakers_changed"] >= 1)
        trouble.clear()
        assert await waiting == 1
        assert HOUR <= (engine.now() - began).total_seconds() < HOUR + 120
