"""How long a lost connection to PostgreSQL waits before it is tried again."""

from __future__ import annotations

from perdure.clock import Computer
from perdure.limits import RECONNECT_CAP_SECONDS, RECONNECT_FIRST_SECONDS


class Backoff:
    """How long to wait before the next attempt to connect: doubled each time, with jitter, up to a cap."""

    def __init__(self, machine: Computer) -> None:
        self._machine = machine
        self._failed = 0

    def reset(self) -> None:
        """The attempt went well."""
        self._failed = 0

    def failed(self) -> float:
        """The attempt failed; the answer is how many seconds to wait."""
        wait = min(RECONNECT_FIRST_SECONDS * 2.0**self._failed, RECONNECT_CAP_SECONDS)
        self._failed = min(self._failed + 1, 30)
        return wait * (0.5 + self._machine.random())
