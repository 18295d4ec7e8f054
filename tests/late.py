"""Answers of the store come late: ordinary tests under this plugin meet what is true no more when it is heard.

``make late`` runs them so, ``make late DOORS=commit MS=40 SEED=7`` with one door of the store. What goes wrong then is
a test that counts on being told first, or an engine that takes what it hears for what is.

With ``CLIENTS=1`` each caller of ``result`` reads the store all the time, as one in another program may: it knows of an
end before its own worker hears that it is stored. ``make late DOORS=commit MS=60 CLIENTS=1`` finds the tests that look
at what that worker logs and counts then.
"""

from __future__ import annotations

import asyncio
import functools
import random
from typing import Any

import pytest

from perdure.client.results import Results
from perdure.store.postgres.store import PostgresStore
from perdure.store.sqlite.store import SqliteStore

DOORS = "start,send,claim,commit,beat,search,messages,history,records,workers"
PATIENCE_SECONDS = 100.0
LOOK_SECONDS = 0.01


def pytest_addoption(parser: pytest.Parser) -> None:
    """What may be late, by how much, and whose dice say so."""
    group = parser.getgroup("late answers")
    group.addoption("--late-doors", default=DOORS, help="the methods of the store whose answers come late")
    group.addoption("--late-ms", type=float, default=20.0, help="each answer is late by up to so many milliseconds")
    group.addoption("--late-seed", type=int, default=0)
    group.addoption("--late-clients", action="store_true", help="clients read the ends of processes in the store first")


def pytest_configure(config: pytest.Config) -> None:
    """Put the delay into both stores, and give the tests that wait a longer breath."""
    from tests.runtime import conftest

    conftest.LIMIT = PATIENCE_SECONDS
    chance = random.Random(config.getoption("--late-seed"))
    seconds = config.getoption("--late-ms") / 1000
    for store in (SqliteStore, PostgresStore):
        for door in config.getoption("--late-doors").split(","):
            setattr(store, door, late(getattr(store, door), chance, seconds))
    if config.getoption("--late-clients"):
        Results.wait, Results._look = elsewhere(Results.wait), often(Results._look)  # type: ignore[method-assign]


def late(door: Any, chance: random.Random, seconds: float) -> Any:
    """A door that is opened a little late, and whose answer is heard a little later."""

    @functools.wraps(door)
    async def opened(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(seconds * chance.random() / 2)
        answer = await door(*args, **kwargs)
        await asyncio.sleep(seconds * chance.random())
        return answer

    return opened


def elsewhere(wait: Any) -> Any:
    """A wait for a result that does not rely on the worker of its own engine."""

    @functools.wraps(wait)
    async def waited(results: Results, id: bytes, *, here: bool) -> Any:
        return await wait(results, id, here=False)

    return waited


def often(look: Any) -> Any:
    """A look for ends in the store that is soon followed by the next one while a caller waits."""

    @functools.wraps(look)
    async def looked(results: Results) -> float:
        seconds: float = await look(results)
        return min(seconds, LOOK_SECONDS) if results.awaited else seconds

    return looked
