"""A turnstile before the write lock: a small writer that must wait says so, and large writers let it go first.

SQLite's write lock has no queue: a writer that polls for it needs luck while others take it again as soon as they have
released it. A small writer that finds it taken holds a shared lock on a file beside the database. A large one that
finds that file locked waits a few milliseconds before it takes the write lock, and writes less at once for a while. The
system frees the file's lock when its holder dies. A holder that is stopped costs each large writer this wait a few
times a second, and no more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from perdure.clock import Computer

try:
    import fcntl
except ImportError:  # pragma: no cover - a system without flock has no turnstile
    fcntl = None  # type: ignore[assignment]

LONGEST_SECONDS = 0.01
"""The longest wait of a large writer before one transaction."""
LOOK_SECONDS = 0.0005
IN_VAIN = 3
"""After so many waits in a row that no small writer has used, large writers do not wait during ..."""
DEAF_SECONDS = 1.0
CROWDED_SECONDS = 1.0
"""How long a small writer that had to wait is remembered: transactions are short meanwhile."""


class Turnstile:
    """The file of one store object; without a file (in memory, no flock, no folder) no writer waits."""

    def __init__(self, folder: Path | None, machine: Computer, wait: Callable[[float], object]) -> None:
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
        """Say that a small writer waits here; false if a large one is just looking at the file: say it again soon."""
        return self._path is None or self._lock(fcntl.LOCK_SH)

    def leave(self) -> None:
        """Say that the small writer waits no more."""
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

    def look(self) -> None:
        """Remember the small writers that came during a large transaction: they may be through before the next one."""
        if not self._empty():
            self._crowded_until = self._machine.monotonic() + CROWDED_SECONDS

    def close(self) -> None:
        """Let go of the file: a small writer that waited here counts no more."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _empty(self) -> bool:
        """Whether no small writer waits; the lock that is taken to find that out is released at once."""
        if self._path is None:
            return True
        if not self._lock(fcntl.LOCK_EX):
            return False
        self._lock(fcntl.LOCK_UN)
        return True

    def _lock(self, how: int) -> bool:
        """Take or release our lock without waiting; false if other locks are in the way."""
        if self._path is None:
            return True
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            self.close()  # no folder yet, or it is gone: there is no turnstile
        return True
