"""The budget of recovery: how many processes workers may revive in a while, all together; the others wait.

The limit is the rate of the switch of recovery, a row of the table of queues; what was spent of it is a note.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from perdure.kernel.queue import Queue

NAME = "recovery budget"
"""The note that says how much is spent."""


class RecoveryBudget(Struct, frozen=True, gc=False):
    """What is spent: ``next_at`` is when the rate will have paid for it, ``by`` the id of who spent last."""

    next_at: int = 0
    by: str = ""

    def left(self, switch: Queue, now: int) -> int | None:
        """How many processes may be revived now; None if there is no limit."""
        return self._charged(switch, now).pace(now)

    def spent(self, switch: Queue, many: int, by: str, now: int) -> RecoveryBudget:
        """The budget after so many revivals by this worker."""
        return RecoveryBudget(self._charged(switch, now).paid(many, now).next_at, by)

    def _charged(self, switch: Queue, now: int) -> Queue:
        """The row of the switch with this debt, which is never longer than one period: the clock may have gone back."""
        return replace(switch, next_at=min(self.next_at, now + switch.per))
