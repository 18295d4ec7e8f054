"""How many processes a claim asks for, after one has failed because of the rows that it read."""

from __future__ import annotations

from perdure import limits
from perdure.errors import StoreError, StoreUnavailable
from perdure.logs import logger

log = logger("worker")

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 5.0


def is_of_what_was_read(error: Exception) -> bool:
    """Whether a claim of fewer rows may succeed: the store is there, but the rows asked for did not arrive."""
    return isinstance(error, MemoryError) or (isinstance(error, StoreError) and not isinstance(error, StoreUnavailable))


class Portion:
    """How many rows a claim asks for: half as many after each failure, down to one, and twice as many after a success.

    While a claim of a single row fails, the time until the next try grows.
    """

    def __init__(self) -> None:
        self.rows = limits.CLAIM_ROWS
        self._in_vain = 0
        self._said = False

    def succeeded(self) -> None:
        """A look at all that is due has been answered."""
        self._in_vain = 0
        self._said = self._said and self.rows < limits.CLAIM_ROWS
        self.rows = min(limits.CLAIM_ROWS, 2 * self.rows)

    def failed(self, asked: int, error: Exception) -> float:
        """A claim of ``asked`` rows has failed: return the seconds until the next look at all that is due."""
        whole = self.rows == limits.CLAIM_ROWS
        self.rows = max(1, asked // 2)
        if asked > 1:
            if whole:
                log.warning("a claim of %d processes has failed; the next one asks for fewer: %.500s", asked, error)
            return 0.0
        self._in_vain += 1
        if not self._said:
            self._said = True
            log.error(
                "a claim of a single process fails (%s: %.500s); the worker tries again, ever less often, and the "
                "processes due behind it wait. `perdure ps` shows what is due: terminate the process that cannot be "
                "read, or raise the memory limits of the database or of this worker",
                type(error).__name__,
                error,
            )
        return min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(self._in_vain - 1, 10))
