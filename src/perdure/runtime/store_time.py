"""The store's time between two answers: the last answer, carried on by the monotonic clock.

It is a lower bound (an answer is already old when it arrives), so nothing is early by it. The store has the last
word: a timer recorded too soon is refused (law ``no_early_timer``).
"""

from __future__ import annotations

from perdure import limits
from perdure.clock import SECOND, Computer, microseconds


class StoreTime:
    """An estimate of the store's clock that never runs ahead of it, and goes backward only if that clock was put back.

    ``last`` is the time that was last heard or asked for: while an answer is being taken, it is that of the answer.
    ``confirmed`` is the time in the last answer, which the store has surely reached.
    """

    def __init__(self, machine: Computer) -> None:
        self._machine = machine
        self._offset: float | None = None
        self._arrived = 0.0
        self.last = self.confirmed = 0

    @property
    def worker(self) -> str:
        """The name of the worker whose estimate this is."""
        return self._machine.name()

    def forget(self) -> None:
        """Forget the store's time until the store answers again."""
        self._offset = None
        self.last = self.confirmed = 0

    def heard(self, now: int, sent: float) -> None:
        """Take the store's time from an answer that has just arrived, to a request sent at the monotonic time ``sent``.

        The store read its clock between the two: an estimate that has fallen behind or run ahead is corrected. It is
        far ahead if the clock of the store's machine was put back: the store's time goes on from what it last gave out.
        """
        self.confirmed = now
        monotonic = self._machine.monotonic()
        at_least = now - monotonic * SECOND
        if self._offset is None:
            self._offset = at_least
        elif sent < self._arrived:  # another answer has come meanwhile: this one may be older
            self._offset = max(self._offset, at_least)
        else:
            at_most = now - sent * SECOND
            self._offset = min(max(self._offset, at_least), at_most)
            self.last = min(self.last, int(at_most + monotonic * SECOND))
        self.last = max(self.last, now)
        self._arrived = monotonic

    def now(self) -> int:
        """Microseconds since 1970 by the store's clock, a little late at most."""
        assert self._offset is not None, "the store has not answered yet"
        self.last = max(self.last, int(self._offset + self._machine.monotonic() * SECOND))
        return self.last

    def idle_at(self, seconds: float | None = None) -> int:
        """The store's time about ``seconds`` (default a day) from now, spread so that reminders do not pile up."""
        spread = 1 + limits.IDLE_CHECK_JITTER * (2 * self._machine.random() - 1)
        return self.now() + microseconds((seconds or limits.IDLE_CHECK_SECONDS) * spread)

    def monotonic(self) -> float:
        """Seconds of the monotonic clock."""
        return self._machine.monotonic()
