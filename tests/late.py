"""Answers of the store come late: ordinary tests under this plugin meet what is true no more when it is heard.

``make late`` runs them so, ``make late DOORS=commit MS=40 SEED=7`` with one door of the store. What goes wrong then is
a test that counts on being told first, or an engine that takes what it hears for what is.
"""

from __future__ import annotations

import asyncio
import functools
import random
from typing import Any

import pytest

from perdure.store.postgres.store import PostgresStore
from perdure.store.sqlite.store import SqliteStore

DOORS = "start,send,claim,commit,beat,search,messages,history,records,workers"
PATIENCE_SECONDS = 100.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """What may be late, by how much, and whose dice say so."""
    group = parser.getgroup("late answers")
    group.addoption("--late-doors", default=DOORS, help="the methods of the store whose answers come late")
    group.addoption("--late-ms", type=float, default=20.0, help="each answer is late by up to so many milliseconds")
    group.addoption("--late-seed", type=int, default=0)


def pytest_configure(config: pytest.Config) -> None:
    """Put the delay into both stores, and give the tests that wait a longer breath."""
    from tests.runtime import conftest

    conftest.LIMIT = PATIENCE_SECONDS
    chance = random.Random(config.getoption("--late-seed"))
    seconds = config.getoption("--late-ms") / 1000
    for store in (SqliteStore, PostgresStore):
        for door in config.getoption("--late-doors").split(","):
            setattr(store, door, late(getattr(store, door), chance, seconds))


def late(door: Any, chance: random.Random, seconds: float) -> Any:
    """A door that is opened a little late, and whose answer is heard a little later."""

    @functools.wraps(door)
    async def opened(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(seconds * chance.random() / 2)
        answer = await door(*args, **kwargs)
        await asyncio.sleep(seconds * chance.random())
        return answer

    return opened
