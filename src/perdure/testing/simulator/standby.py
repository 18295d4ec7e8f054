"""The standby of the simulated server: it has all commits but the last ones."""

from __future__ import annotations

import sqlite3
from collections import deque

from perdure.store.sqlite.connection import Connection


class Standby:
    """Copies of the database after each of the last commits: it may lag behind by so many."""

    def __init__(self, lag: int) -> None:
        self._copies: deque[sqlite3.Connection] = deque(maxlen=lag + 1)

    def keep(self, connection: Connection) -> None:
        """Something was committed."""
        full = len(self._copies) == self._copies.maxlen
        copy = self._copies.popleft() if full else sqlite3.connect(":memory:")
        connection.raw.backup(copy)
        self._copies.append(copy)

    def promote(self, connection: Connection, lost: int) -> int:
        """Set the database back by so many commits, or by as many as are kept; the answer is how many those were."""
        lost = min(lost, len(self._copies) - 1)
        for _ in range(lost):
            self._copies.pop().close()
        self._copies[-1].backup(connection.raw)
        return lost

    def close(self) -> None:
        """Let go of the copies."""
        while self._copies:
            self._copies.pop().close()
