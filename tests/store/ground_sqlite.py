"""Grounds of SQLite: a file, and a database in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from perdure.store.base import Store
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.clock import MachineTime, MovableMachine
from tests.store import damage as values


class SqliteGround:
    """One SQLite database; ``file`` is None for one in memory, which only one store can open."""

    locks_rows = False
    inside = True
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

    def damages(self, table: str) -> Sequence[str]:
        """Bad values; SQLite is told to keep no constraint while they are written."""
        return values.named(values.SQLITE, table)

    async def damage(self, store: Store, row: bytes, table: str, damage: str) -> bool:
        """Write one with the store's own connection: a database in memory has no other."""
        assert isinstance(store, SqliteStore)
        given: bytes | str = row.decode() if table in ("queue", "circuit", "leader", "note") else row

        def write(connection: Connection) -> bool:
            raw = connection.raw
            raw.commit()
            raw.execute("PRAGMA ignore_check_constraints = ON")
            raw.execute("PRAGMA foreign_keys = OFF")
            try:
                return raw.execute(values.statement("", table, damage, ":row"), {"row": given}).rowcount == 1
            except sqlite3.Error:
                return False
            finally:
                raw.commit()
                raw.execute("PRAGMA ignore_check_constraints = OFF")
                raw.execute("PRAGMA foreign_keys = ON")

        return await store._writer.thread.run(write)
