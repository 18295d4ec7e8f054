"""A handle: one durable process as a client holds it, by its id; all that is done to one process is done by it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from perdure import limits
from perdure.client import validation
from perdure.client.calls import Calls
from perdure.client.commands import Commands
from perdure.client.parts import ClientParts
from perdure.client.results import SETTLED, outcome
from perdure.client.values import Published
from perdure.client.view import ProcessView, views
from perdure.clock import Duration
from perdure.kernel.event import Event
from perdure.kernel.message import SendVerdict

ResultT = TypeVar("ResultT")


class Handle(Commands, Published, Calls, Generic[ResultT]):
    """What ``start``, ``handle`` and ``process`` answer. ``created`` is false if the process existed already.

    ``sent`` says what became of the signal that came with the start, if one did. ``kind`` and ``key`` are None where
    nothing but the id is known.

    A handle holds no connection and no memory of the process; any number may exist for one process.
    """

    __slots__ = ("_type", "created", "key", "kind", "known", "sent")

    def __init__(
        self,
        parts: ClientParts,
        id_bytes: bytes,
        kind: str | None = None,
        key: str | None = None,
        *,
        created: bool = False,
        known: bool = True,
        result_type: Any = Any,
    ) -> None:
        super().__init__(parts, id_bytes)
        self._type = result_type
        self.kind = kind
        self.key = key
        self.created = created
        self.sent: SendVerdict | None = None
        self.known = known

    def __repr__(self) -> str:
        return f"<Handle {self.kind or 'process'} {self.key or self.id}>"

    async def result(self, timeout: Duration | None = None) -> ResultT:
        """Wait for the end and give the result. ``timeout`` in seconds raises TimeoutError; the process goes on.

        Raises ProcessFailed, ProcessCancelled or ProcessBroken if it did not complete.
        """
        validation.outside_a_turn()
        limit = validation.timeout(timeout)
        polls = limit is not None and limit < limits.POLL_SECONDS  # the caller wants an answer now, if there is one
        parts, id, ended = self._parts, self.id_bytes, None
        if (polls or not self.known) and not parts.local.holds(id):
            ended = await parts.row(id)
        if ended is not None and ended.status in SETTLED:
            pass
        elif limit is None:
            ended = await parts.results.wait(id, here=parts.local.holds(id))  # as parts.ended(), without its frame
        else:
            async with asyncio.timeout(limit):
                ended = await parts.ended(id)
        result: ResultT = outcome(ended, self._type)
        return result

    async def status(self) -> ProcessView:
        """The process as it is now, with its next mover."""
        [seen] = await views(self._parts.store, [await self._parts.row(self.id_bytes)])
        return seen

    async def history(
        self, run: int | None = None, *, after: int = 0, limit: int = 1000, backward: bool = False
    ) -> Sequence[Event]:
        """Events of a run (default the present one) with numbers above ``after``, at most ``limit``."""
        validation.rows(limit, "the limit")
        row = await self._parts.row(self.id_bytes)
        return await self._parts.store.history(row.id, run or row.run, after=after, limit=limit, backward=backward)
