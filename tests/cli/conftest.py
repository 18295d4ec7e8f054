"""What tests of the command line may ask for: a terminal on each store, and one on SQLite."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, WorkerOptions
from perdure.authoring.registry import Registry
from tests.cli import purse, till
from tests.cli.terminal import Program, Terminal

PACE = WorkerOptions(lease_seconds=3, beat_seconds=0.2, stop_seconds=0.2)
Doing = Callable[[Engine], Coroutine[Any, Any, Any]]
Working = Callable[[Doing], Any]


@pytest.fixture
def postgres_url(cleared_url: str) -> str:
    """The one database that is migrated, emptied: `perdure migrate` is tried on a new one elsewhere."""
    return cleared_url


@pytest.fixture
def terminal(store_url: str) -> Terminal:
    """A terminal on a fresh store of each kind in turn."""
    return Terminal(store_url)


@pytest.fixture
def sqlite_terminal(sqlite_url: str) -> Terminal:
    """A terminal on a fresh SQLite file."""
    return Terminal(sqlite_url)


def on_copy(file: Path, url: str) -> Terminal:
    """A terminal on a copy of a SQLite file that nobody uses."""
    shutil.copyfile(file, url.removeprefix("sqlite:///"))
    return Terminal(url)


@pytest.fixture
def working(request: pytest.FixtureRequest) -> Working:
    """Run something on an engine that works on the till's processes, on the store of the test's terminal."""
    name = "terminal" if "terminal" in request.fixturenames else "sqlite_terminal"
    url = request.getfixturevalue(name).url

    def work(doing: Doing) -> Any:
        return at_work(url, doing)

    return work


def at_work(url: str, doing: Doing) -> Any:
    """What comes of doing this with an engine that works on the till's processes."""

    async def run() -> Any:
        async with Engine(url, work=True, registry=Registry(till, purse), options=PACE) as engine:
            return await doing(engine)

    return asyncio.run(run())


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    """Programs put in here are ended with the test, whatever happens."""
    started: list[Program] = []
    yield started
    for program in started:
        program.end()
