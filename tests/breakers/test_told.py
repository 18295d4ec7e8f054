"""What people are told of breakers: metrics by the name of the breaker."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from perdure import Alert, Breaker, Engine, limits, step, workflow
from perdure.errors import StoreUnavailable
from perdure.kernel.breaker import CLOSED, HALF_OPEN, OPEN, Circuit
from perdure.monitoring.monitor import _states
from perdure.monitoring.series import OTHER
from tests.breakers.bank import ALL, EAGER, MANY, calls, circuit_of, circuit_when, paying, paying_quickly, trouble
from tests.runtime.conftest import LIMIT, Open, until


def state(registry: CollectorRegistry, breaker: str = "bank") -> float | None:
    """The gauge of a breaker; None before there is one."""
    return registry.get_sample_value("perdure_breaker_state", {"breaker": breaker})


async def read(engine: Engine, registry: CollectorRegistry, wanted: float, breaker: str = "bank") -> None:
    """The gauge has this value once the worker has read the database."""
    loop = engine._monitor._loop
    assert loop is not None
    loop.wake()
    await until(lambda: state(registry, breaker) == wanted)


def opened_times(registry: CollectorRegistry, breaker: str = "bank") -> float:
    """How often a worker has opened a breaker."""
    return registry.get_sample_value("perdure_breakers_opened_total", {"breaker": breaker}) or 0.0


async def test_its_state_and_how_often_it_opens_are_metrics_and_each_opening_is_counted_by_one_worker(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BREAKER_LOOK_SECONDS", 0.01)
    first, second = CollectorRegistry(), CollectorRegistry()
    engine, _ = await opened(work=True, workflows=ALL, metrics=first)
    other, _ = await opened(work=True, workflows=ALL, metrics=second)
    handles = [await one.start(paying, number) for number, one in enumerate((engine, other))]
    await until(lambda: engine.metrics()["attempts_barred"] and other.metrics()["attempts_barred"])
    for one, registry in ((engine, first), (other, second)):
        await read(one, registry, 2)
    assert opened_times(first) + opened_times(second) == 1
    assert engine.metrics()["breakers_opened"] + other.metrics()["breakers_opened"] == 1
    trouble.clear()
    await engine.breakers.reset("bank")
    for one, registry in ((engine, first), (other, second)):
        await read(one, registry, 0)
    for handle in handles:
        await handle.cancel()


@step(retry=EAGER, breaker=Breaker("till", failures=3, open_for=0.05, factor=1), timeout=5)
async def ring(number: int) -> int:
    """Fails three times, then at two probes."""
    calls[number] += 1
    if calls[number] <= 5:
        raise ConnectionError("no till")
    return number


@workflow
async def ringing(number: int) -> int:
    return await ring(number)


async def test_a_probe_that_fails_is_one_more_opening(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BREAKER_LOOK_SECONDS", 0.01)
    registry = CollectorRegistry()
    engine, _ = await opened(work=True, workflows=[ringing], metrics=registry)
    handle = await engine.start(ringing, 1)
    assert await handle.result(LIMIT) == 1
    await circuit_when(engine, lambda circuit: circuit.closed)
    await until(lambda: engine.metrics()["breakers_changed"] == 7)
    assert opened_times(registry, "till") == engine.metrics()["breakers_opened"] == 3
    await read(engine, registry, 0, "till")


def test_the_gauge_has_a_bounded_number_of_names_and_those_that_are_open_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "METRIC_SERIES_RECORDS", 2)
    states = {"a": CLOSED, "b": HALF_OPEN, "c": OPEN, "d": "of a newer release", "e": HALF_OPEN}
    found = {labels: value for _, labels, value in _states([Circuit(name, state=one) for name, one in states.items()])}
    assert found == {("c",): 2, ("b",): 1, (OTHER,): 1}


async def test_an_opening_whose_answer_was_lost_is_told_of_once_when_it_is_found_written(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BREAKER_LOOK_SECONDS", 0.01)
    told: list[Alert] = []
    engine, store = await opened(work=True, workflows=ALL, on_alert=told.append)
    lost: list[str] = []

    async def after(name: str, argument: Any) -> None:
        if argument is Circuit and not lost and not (await circuit_of(reader)).closed:
            lost.append(name)
            raise StoreUnavailable("the answer was lost")

    reader, _ = await opened()
    store.after = after
    handles = await engine.start_many(paying_quickly, [(number,) for number in range(MANY)])
    await until(lambda: told)
    trouble.clear()
    assert [await handle.result(LIMIT) for handle in handles] == list(range(MANY))
    await circuit_when(engine, lambda circuit: circuit.closed)
    assert lost and [alert.kind for alert in told] == ["breaker"] and "attempts have failed" in told[0].text
