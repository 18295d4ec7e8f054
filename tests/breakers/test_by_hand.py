"""Breakers set by a person, from a program and at the terminal."""

from __future__ import annotations

import asyncio

import pytest

from perdure.errors import ProcessFailed
from perdure.kernel.breaker import Circuit
from tests.breakers.bank import (
    ALL,
    calls,
    paying,
)
from tests.runtime.conftest import LIMIT, Open


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
