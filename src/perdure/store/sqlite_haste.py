"""Haste: while a thread of ours has work for the database, the interpreter's lock changes hands more quickly.

A thread that wants the interpreter's lock waits 5 ms before it asks the holder to let go, and begins to wait anew
whenever the holder lets go for a moment, as an event loop does in each of its rounds. A transaction wants the lock
about ten times, so that beside a busy event loop it would take 50 ms or starve, with the database's write lock in hand,
for which other workers wait; and every batch would begin 5 ms late. So the interval is shorter than a round from when
the work is handed over until it is done, and then put back.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType

SWITCH_SECONDS = 0.00005


class Haste:
    """A context in which the interval is short; several threads may be in it at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._usual = 0.0

    def begin(self) -> None:
        """Hurry; as often as this is called, :meth:`end` is to be."""
        with self._lock:
            if self._inside == 0:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, SWITCH_SECONDS))
            self._inside += 1

    def end(self) -> None:
        """Hurry no more, unless somebody else does."""
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                sys.setswitchinterval(self._usual)

    def __enter__(self) -> None:
        self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


haste = Haste()
"""The one of this program: the interval belongs to the interpreter."""
