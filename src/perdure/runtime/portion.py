"""A portion: how many processes one claim asks for, where a claim has failed over what it would have read."""

from __future__ import annotations

import logging

from perdure import limits
from perdure.errors import StoreError, StoreUnavailable

log = logging.getLogger("perdure")

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 5.0


def is_of_what_was_read(error: Exception) -> bool:
    """Whether a claim may succeed with fewer rows: the store is there, and did not hand over what was asked for."""
    return isinstance(error, MemoryError) or (isinstance(error, StoreError) and not isinstance(error, StoreUnavailable))


class Portion:
    """Half as many after each claim that failed, at last one; twice as many after each that did not.

    If one alone fails, the time until the next try grows: nothing is gained by haste.
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
        """A claim of so many has failed; how many seconds to wait until all that is due is looked at again."""
        whole = self.rows == limits.CLAIM_ROWS
        self.rows = max(1, asked // 2)
        if asked > 1:
            if whole:
                log.warning("intake: %.500s. That was a claim of %d processes; fewer are asked for", error, asked)
            return 0.0
        self._in_vain += 1
        if not self._said:
            self._said = True
            log.error(
                "intake: a claim of a single process fails (%s: %.500s); it is tried again, ever less often, and what "
                "is due behind it waits. `perdure ps` shows what is due: terminate what cannot be read, or raise "
                "what the database or this worker may use",
                type(error).__name__,
                error,
            )
        return min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(self._in_vain - 1, 10))
