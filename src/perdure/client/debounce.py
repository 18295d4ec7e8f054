"""A debounced start: it begins a process that waits for later starts with its key, or puts off the one that waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from perdure import limits
from perdure.authoring.start import NamedWorkflow, StartOptions
from perdure.authoring.workflow import Workflow
from perdure.client import validation
from perdure.client.decision import Decision
from perdure.client.handle import Handle
from perdure.client.orders import Orders
from perdure.client.parts import ClientParts
from perdure.errors import IllegalMove, ProcessNotFound
from perdure.kernel import debounce, removal
from perdure.kernel.commit import CREATED, Commit, StartAnswer
from perdure.kernel.event import Event
from perdure.kernel.names import DEBOUNCED
from perdure.kernel.process import Process
from perdure.kernel.transition import Sender

Begin: TypeAlias = Callable[[Process, int], Awaitable[tuple[Process, StartAnswer]]]
"""Stores a start that is due after so many microseconds; the answer begins with what was stored."""
_SENDER = Sender(why="debounced", origin="client")


class WaitingProcess(Orders):
    """A process that a debounced start has found under its key."""

    __slots__ = ()

    async def put_off(self, start: Process, wait: int, longest: int | None) -> bool:
        """Have it begin with the input and the options of a later start; false if it has begun.

        One that has ended before it has begun gives its key back.
        """
        ended = False

        def later(row: Process, history: Sequence[Event], now: int) -> Commit:
            nonlocal ended
            ended = row.final
            if ended and row.key is not None:
                return removal.key_released(row, _SENDER, now=now)
            return debounce.put_off(row, history, start, _SENDER, due_at=debounce.due(row, wait, longest, now), now=now)

        try:
            await self._order(Decision(later))
        except (IllegalMove, ProcessNotFound):
            return False
        return not ended


async def debounced(
    parts: ClientParts, begin: Begin, process: Process, flow: Workflow[Any, Any] | NamedWorkflow, options: StartOptions
) -> Handle[Any]:
    """Store a debounced start; the handle is that of the process that begins with this start or with a later one."""
    wait, longest = validation.debounce(options, process.deadline)
    for _ in range(limits.COMMAND_TRIES):
        start, answer = await begin(replace(process, key=f"{DEBOUNCED}{options.key}"), wait)
        created = answer.verdict is CREATED
        if created or await WaitingProcess(parts, answer.id).put_off(start, wait, longest):
            type = flow.shape.result_type
            return Handle(parts, answer.id, process.kind, options.key, created=created, result_type=type)
        # That one has begun, or is beginning: its key is free, and this start is the first of the next.
        process = replace(process, id=parts.machine.new_id())
    raise IllegalMove(f"the key {options.key!r} kept changing hands while a start was debounced; start it again")
