"""A SQLite file, stores on it, and OS processes that work on it too."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.store.sqlite.store import SqliteStore
from perdure.testing.clock import MachineTime, MovableMachine
from perdure.testing.conformance import Trial
from tests.store.ground_sqlite import SqliteGround

Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the database lies."""
    return tmp_path / "shop.db"


@pytest.fixture
def machine() -> MovableMachine:
    """The time of all stores of this test process."""
    return MovableMachine()


@pytest.fixture
def url(file: Path) -> str:
    """The URL of the file."""
    return f"sqlite:///{file}"


@pytest.fixture
async def store(url: str, file: Path, migrated_file: Path, machine: MovableMachine) -> AsyncIterator[SqliteStore]:
    """An open store on the file, which was migrated before."""
    shutil.copy(migrated_file, file)
    store = SqliteStore(url, machine=machine)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def trial(file: Path, machine: MovableMachine, store: SqliteStore) -> Trial:
    """The store, with the short words of the conformance suite."""
    ground = SqliteGround(file)
    ground.machine = machine
    ground.time = MachineTime(machine)
    return Trial(ground, store)


@pytest.fixture
def raw(file: Path, store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """A connection that is nobody's, with its transactions in the test's hand."""
    connection = sqlite3.connect(file, timeout=0, isolation_level=None)
    yield connection
    connection.close()


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Start a Python program as an OS process of its own; what is still running at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@contextmanager
def write_lock(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the database's write lock."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
