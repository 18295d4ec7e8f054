"""Breakers set by a person, from a program and at the terminal."""

from __future__ import annotations

import asyncio
import logging

import pytest

from perdure import BlockingEngine, limits
from perdure.errors import InvalidKey, ProcessFailed
from perdure.kernel.breaker import Circuit
from tests.breakers.bank import (
    ALL,
    calls,
    paying,
    trouble,
)
from tests.runtime.conftest import LIMIT, Open, until


async def test_a_person_opens_closes_and_resets_it(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=ALL)
    assert (await engine.breakers.state("bank")).state == "closed"
    seen = await engine.breakers.open("bank", who="ana", why="it moves")
    assert (seen.state, seen.forced, seen.who, seen.why, seen.until) == ("open", True, "ana", "it moves", None)
    assert await engine.breakers.list() == [seen] == [await engine.breakers.state("bank")]
    closed = await engine.breakers.close("bank", who="bob")
    for number in range(4):
        handle = await engine.start(paying, number)
        with pytest.raises(ProcessFailed):
            await handle.result(LIMIT)
    assert calls.total() == 4 * 9
    assert (await engine.breakers.state("bank")) == closed, "whatever fails"
    assert (await engine.breakers.reset("bank", who="bob")).forced is False


async def test_many_who_change_it_at_once_are_all_heard(opened: Open) -> None:
    engine, _ = await opened()
    verbs = [engine.breakers.open, engine.breakers.close, engine.breakers.reset]
    await asyncio.gather(*(verbs[number % 3]("bank", who=str(number)) for number in range(9)))
    [circuit] = await engine.store.records(Circuit)
    assert circuit.version == 9


async def test_a_person_is_heard_by_workers_that_know_better_and_steps_that_wait_go_on(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BREAKER_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(limits, "BREAKER_LOOK_SECONDS", 0.01)
    engine, _ = await opened(work=True, workflows=ALL)
    handle = await engine.start(paying, 1)
    await until(lambda: engine.metrics()["attempts_barred"] >= 1)
    trouble.clear()
    await engine.breakers.reset("bank", who="ana")
    assert await handle.result(LIMIT) == 1


async def test_each_change_by_hand_is_logged_once(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    engine, _ = await opened()
    with caplog.at_level(logging.INFO, "perdure.breaker"):
        await engine.breakers.open("bank", who="ana", why="it moves")
    assert [record.getMessage() for record in caplog.records if record.name == "perdure.breaker"] == [
        "breaker bank is kept open by ana: it moves; it was closed"
    ]


def test_breakers_are_set_without_an_event_loop(store_url: str) -> None:
    with BlockingEngine(store_url, migrate=True) as engine:
        assert engine.breakers.open("bank", who="ana").state == "open"
        assert engine.breakers.close("bank").forced
        assert engine.breakers.reset("bank") == engine.breakers.state("bank") == engine.breakers.list()[0]
        with pytest.raises(InvalidKey, match="the name of the breaker is empty"):
            engine.breakers.open("")
