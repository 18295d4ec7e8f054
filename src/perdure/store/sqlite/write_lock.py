"""A turnstile before the write lock: who has little to write and waits says so, and who writes much lets them by.

SQLite's write lock knows no queue: who polls for it must be lucky where others take it again as soon as they let go.
A small writer that finds it taken holds a shared lock on a file beside the database; a large one that finds that lock
held waits a few milliseconds before it takes the write lock, and writes less at once for a while. The system frees the
lock when its holder dies. A holder that is stopped costs each large writer that time a few times a second, and no more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from perdure.clock import Machine

try:
    import fcntl
except ImportError:  # pragma: no cover - a system without flock has no turnstile
    fcntl = None  # type: ignore[assignment]

LONGEST_SECONDS = 0.01
"""What a large writer waits at most before one transaction."""
LOOK_SECONDS = 0.0005
IN_VAIN = 3
"""So many waits in a row that nobody has used, and small writers are not waited for during ..."""
DEAF_SECONDS = 1.0
CROWDED_SECONDS = 1.0
"""How long a small writer that had to wait is remembered: transactions are short meanwhile."""


class Turnstile:
    """The file of one store object; without one (in memory, no flock, no folder) everybody goes on at once."""

    def __init__(self, folder: Path | None, machine: Machine, wait: Callable[[float], object]) -> None:
        self._path = None if folder is None or fcntl is None else folder / "turnstile"
        self._machine = machine
        self._wait = wait
        self._file: int | None = None
        self._vain = 0
        self._deaf_until = 0.0
        self._crowded_until = 0.0

    @property
    def crowded(self) -> bool:
        """Whether small writers had to wait a moment ago."""
        return self._machine.monotonic() < self._crowded_until

    def enter(self) -> bool:
        """Say that a small writer waits here; false if somebody just looks whether one does: say it again soon."""
        return self._path is None or self._lock(fcntl.LOCK_SH)

    def leave(self) -> None:
        """It waits no more."""
        if self._path is not None:
            self._lock(fcntl.LOCK_UN)

    def let_by(self) -> None:
        """Wait for small writers, if some wait; for a few milliseconds at most, and not again and again in vain."""
        now = self._machine.monotonic()
        if now < self._deaf_until or self._empty():
            return
        until = now + LONGEST_SECONDS
        self._crowded_until = now + CROWDED_SECONDS
        while self._machine.monotonic() < until:
            self._wait(LOOK_SECONDS)
            if self._empty():
                self._vain = 0
                return
        self._vain += 1
        if self._vain >= IN_VAIN:
            self._vain, self._crowded_until = 0, 0.0
            self._deaf_until = self._machine.monotonic() + DEAF_SECONDS

    def close(self) -> None:
        """Let go of the file; who waited here waits no more."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _empty(self) -> bool:
        """Whether nobody waits; what is taken to find that out is let go of at once."""
        if self._path is None:
            return True
        if not self._lock(fcntl.LOCK_EX):
            return False
        self._lock(fcntl.LOCK_UN)
        return True

    def _lock(self, how: int) -> bool:
        """Take or let go of our lock without waiting; false if others are in the way."""
        if self._path is None:
            return True
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            self.close()  # no folder yet, or it is gone: nobody can be told
        return True
