"""The event log of a database: what has happened to all processes, in one order, from some position on.

It exists while there is an event stream. Then triggers of the database write to it in the transaction of each commit,
whichever release of Perdure has made that commit; without a stream there are no triggers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perdure.kernel.stream import LogPage


class EventLog(Protocol):
    """Reads the log; the rows of streams, and with them how far each has come, are small records of the store."""

    async def read(
        self, behind: int, most: int, size: int, kinds: Sequence[str] | None = None, types: Sequence[int] | None = None
    ) -> LogPage:
        """What stands behind a position: at most so many positions, and (but for the last payload) bytes of payloads.

        ``kinds`` and ``types`` narrow if they are given; without ``kinds``, queued steps and the library's own
        processes are left out. What was not committed yet when this reads comes at a higher position.
        """

    async def head(self) -> int:
        """The last position that was given."""

    async def fill(self, stream: str, since: int) -> bool:
        """Put what is stored, from an instant on, into the log below all else, for a stream that is ``unfilled``.

        What the log has already is left out, so each event stands there once, and those of one process stand in order.
        The positions are such as no other stream reads. False if there is no such stream. One transaction.
        """

    async def trim(self) -> bool:
        """Remove a portion of what no stream needs any more; whether more of it may be left.

        A stream that moves on does the same. What a stream leaves that is removed while it is far behind is too much
        for one transaction: who removes it, or makes one, asks until nothing is left.
        """
