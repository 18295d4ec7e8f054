"""Grounds of SQLite: a file, and a database in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from perdure.store.base import Store
from perdure.store.sqlite import SqliteStore
from perdure.testing.clock import MachineTime, MovableMachine


class SqliteGround:
    """One SQLite database; ``file`` is None for one in memory, which only one store can open."""

    locks_rows = False
    hints = True

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.machine = MovableMachine()
        self.time = MachineTime(self.machine)
        self.shared = self.lasting = file is not None

    def store(self) -> Store:
        """Another store on the same file."""
        return SqliteStore(f"sqlite:///{self.file or ':memory:'}", machine=self.machine)

    @asynccontextmanager
    async def locked(self, *processes: bytes) -> AsyncIterator[None]:
        """Nobody locks single rows here."""
        raise NotImplementedError
        yield
