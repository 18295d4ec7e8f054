"""A handle: a client's reference to one durable process; everything done to a single process is a method of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perdure import limits
from perdure.client import validation
from perdure.client.calls import Calls
from perdure.client.commands import Commands
from perdure.client.parts import ClientParts
from perdure.client.results import SETTLED, outcome, too_late
from perdure.client.values import Published
from perdure.clock import Duration
from perdure.kernel.commit import CREATED
from perdure.kernel.event import Event
from perdure.kernel.message import SendVerdict

if TYPE_CHECKING:
    from perdure.client.status_changes import StatusChange
    from perdure.client.trace import TracedStep
    from perdure.client.view import ProcessView

ResultT = TypeVar("ResultT")


class Handle(Commands, Published, Calls, Generic[ResultT]):
    """A reference to one durable process: what ``start``, ``handle`` and ``process`` of an engine return.

    ``created`` is true if ``start`` has created the process, and false if the process existed already. ``sent`` says
    what became of the signal that was given to ``start``, if one was. ``kind`` and ``key`` are None if only the id is
    known.

    A handle holds no connection and copies nothing of the process; any number of handles may exist for one process.
    Every method that reads or changes the process raises ProcessNotFound if it does not exist, or not any more.
    """

    __slots__ = ("created", "key", "known", "result_type", "sent")

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
        self._parts = parts  # and not by super().__init__(): a start makes one of these
        self.id_bytes = id_bytes
        self.kind = kind
        self.result_type = result_type
        self.key = key
        self.created = created
        self.sent: SendVerdict | None = None
        self.known = known

    def __repr__(self) -> str:
        return f"<Handle {self.kind or 'process'} {self.key or self.id}>"

    async def result(self, timeout: Duration | None = None) -> ResultT:
        """Wait until the process has ended, and return its result as the type that the workflow declares.

        Raises ProcessFailed or ProcessCancelled if the process has ended so, and ProcessBroken once it cannot go on
        without a person. After ``timeout`` seconds (default: never) it raises TimeoutError; the process goes on. Raises
        PayloadError if the result does not fit the type.
        """
        validation.outside_a_turn()
        limit = validation.timeout(timeout)
        parts, id, ended = self._parts, self.id_bytes, None
        if (limit is not None or not self.known) and self._reads_first(limit):  # most callers are spared the call
            ended = await parts.row(id)
        if ended is not None and ended.status in SETTLED:
            pass
        elif limit is None:
            ended = await parts.results.wait(id, here=parts.local.holds(id))  # as parts.ended(), without its frame
        else:
            try:
                async with asyncio.timeout(limit):
                    ended = await parts.ended(id)
            except TimeoutError:
                raise too_late(self.id, limit) from None
        result: ResultT = outcome(ended, self.result_type)
        return result

    def _reads_first(self, limit: float | None) -> bool:
        """Whether the row is read before anybody waits: an answer is wanted now, or the process may not be there."""
        polls = limit is not None and limit < limits.POLL_SECONDS
        return (polls or not self.known) and not self._parts.local.holds(self.id_bytes)

    async def status(self) -> ProcessView:
        """Read the process as it is now: its status, what it waits for, and who moves it next."""
        from perdure.client.view import views

        [seen] = await views(self._parts.store, [await self._parts.row(self.id_bytes)])
        return seen

    async def statuses(self) -> Sequence[StatusChange]:
        """Read each change of its status, in the last runs: when, from which to which, by whom and why."""
        from perdure.client.status_changes import status_changes

        return await status_changes(self._parts, self.id_bytes)

    async def trace(self) -> Sequence[TracedStep]:
        """Read all steps, queued steps and children of all runs that are kept, in the order in which they ended.

        Those that are open come last. See :class:`TracedStep` for what is known of each. It is read from the first
        100,000 such events: what comes after them is left out.
        """
        from perdure.client.trace import traced

        return await traced(self._parts, self.id_bytes)

    async def fork(
        self,
        at: int | str | None = None,
        *,
        key: str | None = None,
        version: str | None = None,
        who: str = "",
        why: str = "",
        origin: str = "client",
    ) -> Handle[ResultT]:
        """Start a new process that shares the history of this one up to a place, and goes on from there by itself.

        ``at`` is a step, by its name, or by name and place (``charge:2``): that step runs again, and so does all that
        followed; or the number of the first event that the fork leaves out. By default the fork keeps everything, of a
        failed process all before the step that failed. Steps with a result that is kept do not run again; all others
        run under idempotency keys of the fork. The process itself stays as it is, in any status.

        ``key`` is the fork's own: the same fork asked for once more with it is answered with ``created`` false.
        ``version`` is that of the workflow's code, by default this process's own. Raises KeyConflict, IllegalMove if
        there is no such place, for a machine or a queued step, if a step that would be kept was undone, and if both
        would undo it; InvalidInput, UnreadablePayload, NewerRecord, DamagedRecord for a history that cannot be copied.
        """
        sender = validation.sender(who, why, origin)
        from perdure.client.fork import forked

        kind, answer = await forked(self._parts, self.id_bytes, at, key, version, sender)
        created = answer.verdict is CREATED
        return Handle(self._parts, answer.id, kind, key, created=created, result_type=self.result_type)

    async def history(
        self, run: int | None = None, *, after: int = 0, limit: int = 1000, backward: bool = False
    ) -> Sequence[Event]:
        """Read at most ``limit`` events of a run (default: the current one) with numbers above ``after``, in order.

        With ``backward`` the newest event comes first; then ``after``, if not 0, asks for the numbers below it. The
        times of events are microseconds since 1970 (UTC). Raises InvalidInput for a wrong limit.
        """
        validation.rows(limit, "the limit")
        row = await self._parts.row(self.id_bytes)
        return await self._parts.store.history(row.id, run or row.run, after=after, limit=limit, backward=backward)
