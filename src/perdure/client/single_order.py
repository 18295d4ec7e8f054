"""A single order of an operation: one process that is commanded by itself, or tried, as a person would do it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from perdure.authoring.operation.plan import CHANGED
from perdure.client import decision, validation
from perdure.client.decision import Decision
from perdure.client.handle import Handle
from perdure.client.judged import Changed, Judged, effects, unless_changed
from perdure.client.parts import ClientParts
from perdure.errors import IllegalMove, PerdureError
from perdure.kernel.command import Verb, allow
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event
from perdure.kernel.message import Message, MessageType, SendVerdict
from perdure.kernel.process import Process
from perdure.kernel.run import opening_of
from perdure.kernel.transition import Sender

ANY_TIME = 2**62
"""Later than all changes, in microseconds."""


class Tried(PerdureError):
    """Nothing was written: the command would be carried out, with these effects."""

    def __init__(self, judged: Judged) -> None:
        super().__init__("it was only tried")
        self.judged = judged


class SingleOrder(Handle[Any]):
    """A handle whose commands are carried out only if the process has not changed after ``until``.

    If it is ``dry``, they are only tried: they raise Tried instead of being written.
    """

    __slots__ = ("dry", "until")

    def __init__(self, parts: ClientParts, id: bytes, until: int, *, dry: bool = False) -> None:
        super().__init__(parts, id, known=False)
        self.until = until
        self.dry = dry

    async def carry_out(self, decision: Decision) -> None:
        """Carry out a command; raises what a single command raises."""
        await self._order(decision)

    async def cancel_once(self, sender: Sender) -> None:
        """Ask it to cancel; asked again by the same operation, it hears it once. Raises IllegalMove if it has ended.

        Between this look and the message it may change: what has gone on is asked to cancel all the same.
        """
        row = await self._parts.row(self.id_bytes)
        if row.changed_at > self.until:
            raise Changed(CHANGED)
        allow(row, Verb.CANCEL)
        if self.dry:
            raise Tried(Judged())
        id = blake2b(sender.origin.encode(), digest_size=16, key=row.id, person=b"operation").digest()
        raw = sender.encode()
        answer = await self._parts.outgoing.sent(Message(id, row.id, MessageType.CANCEL, "cancel", raw, sender=raw))
        validation.check_sent(answer)
        if answer.verdict is SendVerdict.FINISHED:
            raise IllegalMove("it has ended meanwhile")

    async def take_back_input(self, origin: str, sender: Sender) -> None:
        """Give it the input that it had before one of that origin was edited; raises IllegalMove."""
        row = await self._parts.row(self.id_bytes)
        before = opening_of(await self._parts.store.history(row.id, row.run - 1, limit=1) if row.run > 1 else ())
        former = bytes(before.input) or row.input
        await self._order(decision.take_back("edit-input", origin, sender, self._parts.machine.random, former))

    async def _order(self, decision: Decision) -> None:
        guarded = unless_changed(decision, self.until)

        def tried(row: Process, history: Sequence[Event], now: int) -> Commit:
            raise Tried(effects(row, history, guarded.decide(row, history, now)))

        await super()._order(replace(guarded, decide=tried) if self.dry else guarded)
        self.until = ANY_TIME  # what has changed it now is this command; a removal may need another one after it

    async def _thin_out(self, row: Process) -> None:
        """Remove the former runs of a process that goes: not of one that is only tried, or has changed."""
        if row.changed_at > self.until:
            raise Changed(CHANGED)
        if not self.dry:
            await super()._thin_out(row)


Alone = Callable[[SingleOrder], Awaitable[None]]
"""What is done to a process by itself, where one decision is not enough."""
