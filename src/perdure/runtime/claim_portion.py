"""How many processes a claim asks for, after one has failed because of the rows that it read, or has taken too long."""

from __future__ import annotations

from perdure import limits
from perdure.errors import StoreError, StoreUnavailable
from perdure.logs import logger

log = logger("worker")

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 5.0
SLOW_PART, QUICK_PART = 2 / 3, 1 / 4
"""Of a lease: a claim that takes longer is followed by smaller ones, one that takes less by larger ones."""


def is_of_what_was_read(error: Exception) -> bool:
    """Whether a claim of fewer rows may succeed: the store is there, but the rows asked for did not arrive."""
    if isinstance(error, StoreUnavailable):
        return error.unread
    return isinstance(error, MemoryError | StoreError)


class Portion:
    """How many rows a claim asks for: half as many after each failure, down to one, and twice as many after a success.

    It is halved too if a claim takes most of the lease that it gives: that would end before the processes can go on.
    While a claim of a single row fails, the time until the next try grows.
    """

    def __init__(self) -> None:
        self.rows = limits.CLAIM_ROWS
        self._in_vain = 0
        self._said = False
        self._quick = True

    def took(self, claimed: int, part: float) -> None:
        """A claim has taken so many rows, and this ``part`` of their lease until it was answered."""
        self._quick = self._quick and part < QUICK_PART
        if part > SLOW_PART and claimed:
            self.rows = max(1, claimed // 2)

    def succeeded(self) -> None:
        """A look at all that is due has been answered."""
        self._in_vain = 0
        self._said = self._said and self.rows < limits.CLAIM_ROWS
        if self._quick:
            self.rows = min(limits.CLAIM_ROWS, 2 * self.rows)
        self._quick = True

    def failed(self, asked: int, error: Exception) -> float:
        """A claim of ``asked`` rows has failed: return the seconds until the next look at all that is due."""
        whole = self.rows == limits.CLAIM_ROWS
        self.rows = max(1, asked // 2)
        if asked > 1:
            if whole:
                log.warning("a claim of %d processes has failed; the next one asks for fewer: %.500s", asked, error)
            return 0.0
        self._in_vain += 1
        # A database that is away has failed once in this way, and fails the next claim in another.
        if not self._said and (self._in_vain > 1 or not isinstance(error, StoreUnavailable)):
            self._said = True
            log.error(
                "a claim of a single process fails (%s: %.500s); the worker tries again, ever less often, and the "
                "processes due behind it wait. `perdure ps` shows what is due: terminate the process that cannot be "
                "read, or raise the memory limits of the database or of this worker",
                type(error).__name__,
                error,
            )
        return min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(self._in_vain - 1, 10))
