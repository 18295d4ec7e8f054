"""The turn loop: a small deterministic event loop that gives a process's code its turns.

What would be I/O elsewhere is an output here: steps become asks, sleeping becomes timers. What comes back is delivered
in the recorded order, so replay arrives at the same place. Nothing here blocks, and nothing reads a clock.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any

from perdure.errors import HistoryMisfit, PayloadError
from perdure.kernel import payload as payloads
from perdure.kernel.diagnosis import WAITS_FOR_NOTHING
from perdure.kernel.failure import Failure
from perdure.kernel.message import MessageType
from perdure.kernel.workflow_retry import UNTIL_NEXT_ATTEMPT
from perdure.turns import eviction, saga
from perdure.turns.ask import Ask, fail, resolve
from perdure.turns.asking import AskingLoop
from perdure.turns.current import current_turn, enter, leave, turn_running
from perdure.turns.renewal import NEXT_ATTEMPT
from perdure.turns.sandbox import overrides

if TYPE_CHECKING:
    from perdure.kernel.call_shape import CallShape

__all__ = ["Ask", "TurnLoop", "current_turn", "turn_running"]

_AWAITING_LENGTH = 200


class TurnLoop(AskingLoop):
    """The event loop of one process in memory: its life, its replay, what comes in, and what it waits for."""

    __slots__ = ()

    # -- the life of a process in memory -----------------------------------------------------------------------------

    def begin(
        self,
        function: Callable[..., Coroutine[Any, Any, Any]],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        shape: CallShape | None = None,
    ) -> None:
        """Make the root task of ``function(*args, **kwargs)``; runs nothing yet."""
        overrides.build()
        self.shape = shape
        self.root = self.make_task(function(*args, **(kwargs or {})), "", "workflow", Context())

    def run(self, now: int) -> None:
        """Run one turn at the instant ``now`` (microseconds since 1970), until nothing is ready any more.

        Raises WorkflowMisuse if the code runs on without waiting for anything; then only :meth:`evict` is left.
        """
        if self.finished:
            return
        if self.dead or self.root is None:
            raise RuntimeError("a turn cannot run before begin() or after evict()")
        self.now = now
        self.runs += 1
        before = enter(self)
        try:
            self._turn()
        finally:
            leave(before)

    def _turn(self) -> None:
        self.drain()
        root = self.root
        if root is not None and root.done():
            del root
            while not self.finished and eviction.wind_up(self):
                self.drain()

    def failure(self) -> BaseException | None:
        """The error that the workflow ended with, if it did."""
        return self.error

    def result_payload(self, shape: CallShape | None = None) -> bytes:
        """The workflow's result as a payload; raises PayloadError if it cannot be one, or not of the shape's type."""
        if shape is not None:
            return shape.encode_result(self.result)
        return payloads.encode(self.result, what="the result of the workflow")

    def evict(self) -> None:
        """Drop the process from memory: its code ends here, and nothing that its clean-up does counts (rule 20)."""
        if self.dead:
            return
        self.dead = True
        if self.finished:
            if self.saga is not None:
                saga.free(self)
            return
        before = enter(self)
        try:
            eviction.evict(self)
        finally:
            leave(before)

    # -- replay ------------------------------------------------------------------------------------------------------

    def begin_replay(self, fired: Container[str], past: int | None) -> None:
        """Begin a replay: the timers at these places have fired; ``past`` is the recorded turn that it begins with.

        It is None if none is on record.
        """
        self.fired = fired
        self.past = past

    def begin_as(self, other: bytes) -> None:
        """Begin as the process with that id began, whose history this one shares: sets iterate as they did there."""
        self.numbers = int.from_bytes(other[-6:], "big") << 12

    def reseed(self, seed: bytes) -> None:
        """Draw the random numbers of the turns that follow from this seed."""
        if seed != self.seed:
            self.seed = seed
            self._chance = None

    def replay_turn(self, number: int, now: int) -> None:
        """Run a recorded turn at its own time."""
        if self.past is not None:
            self.past = number
        self.run(now)

    def end_replay(self) -> None:
        """End the replay: all that comes now is new, and letters in the store are read from the first on."""
        self.past = self.fired = None
        if self.backlog:  # a worker with an older Perdure may have read later letters and left earlier ones
            for box in self.mailboxes.values():
                box.rewind()

    # -- what comes in -------------------------------------------------------------------------------------------------

    def step_done(self, place: str, name: str, digest: bytes | None, payload: bytes | None, ours: bool = False) -> None:
        """Deliver a step's result; raises HistoryMisfit if the code asked for no such step, or with other arguments.

        ``ours`` says that this program has just written the payload.
        An ask that the code has cancelled is not open any more: look into ``open`` before delivering a live result.
        """
        ask = self.open.pop((name, place), None)
        if ask is None or (digest != ask.digest and digest is not None):
            raise misfit(self, "result", place, name, ask)
        try:
            value = ask.step.shape.decode_result(payload or b"null", ours)
        except PayloadError as error:
            raise HistoryMisfit(f"a result of step {name!r} at place {place}", f"cannot read it ({error})") from error
        if self.saga is not None:
            self.saga.keep_result(ask, payload)
        resolve(ask, value)

    def step_failed(self, place: str, name: str, digest: bytes | None, payload: bytes | None) -> None:
        """Deliver a step's final failure; raises HistoryMisfit as :meth:`step_done` does."""
        ask = self.open.pop((name, place), None)
        if ask is None or (digest is not None and digest != ask.digest):
            raise misfit(self, "failure", place, name, ask)
        fail(ask, Failure.decode(payload or b"{}").as_step_error(name, ask.asked.raises))

    def child_ended(self, place: str, name: str, digest: bytes | None, type: MessageType, payload: bytes) -> None:
        """Deliver the answer of a child or a queued step; raises HistoryMisfit as :meth:`step_done` does."""
        slot = name, place
        if slot in self.stopping:
            self.stopping.discard(slot)
            Future.cancel(self.open.pop(slot))
        elif type is MessageType.RESULT:
            self.step_done(place, name, digest, payload)
        else:
            ask = self.open.pop(slot, None)
            if ask is None or (digest is not None and digest != ask.digest):
                raise misfit(self, "failure", place, name, ask)
            fail(ask, ask.asked.error(type, Failure.decode(payload)))

    def timer_fired(self, place: str) -> None:
        """Deliver a timer; raises HistoryMisfit if none is open at that place."""
        timer = self.timers.fire(place)
        if timer is None:
            raise HistoryMisfit(f"a timer at place {place}", f"set {_listed('timer', self.timers.open)}")
        self.ready.append(timer.fire())

    def message(self, type: MessageType, name: str, payload: bytes, number: int = 0, *, recorded: bool = True) -> None:
        """Deliver a message: a signal or a call goes to its mailbox, a cancel to what the workflow awaits.

        A letter that no receiver awaits is not ``recorded`` yet: ``received`` gets it once the code has received it.
        """
        if type is not MessageType.CANCEL:
            self.mailbox(name).put((payload, number, type is MessageType.CALL, recorded))
        elif self.root is not None and self.root.cancel():
            self.root.asked_to_end = True
        else:
            self.late += (number,)
            if self.saga is not None:
                self.saga.hurry()

    # -- what it waits for ---------------------------------------------------------------------------------------------

    def next_timer(self) -> tuple[int, str] | None:
        """Due time and place of the timer that fires first."""
        timer = self.timers.next()
        return None if timer is None else (timer.due, timer.place)

    def due_timers(self, now: int) -> list[tuple[int, str]]:
        """Due time and place of the timers due by ``now``, in firing order: due time, then creation."""
        return [(timer.due, timer.place) for timer in self.timers.due(now)] if self.timers.open else []

    def awaiting(self) -> str:
        """What the process waits for, for people, in at most 200 characters."""
        waits: dict[str, None] = {}
        for ask in self.open.values():
            if saga.unheard(self, ask):
                continue
            waits[f"{'undo' if isinstance(ask, saga.UndoAsk) else ask.step.noun} {ask.name}"] = None
        for box in self.mailboxes.values():
            if box.awaited:
                waits[f"signal {box.name}"] = None
        if self.timers.open:
            waits[UNTIL_NEXT_ATTEMPT if NEXT_ATTEMPT in self.timers.open else "timer"] = None
        text = ", ".join(waits) or WAITS_FOR_NOTHING
        return text if len(text) <= _AWAITING_LENGTH else text[: _AWAITING_LENGTH - 1] + "…"


def misfit(loop: TurnLoop, what: str, place: str, name: str, ask: Ask[Any] | None) -> HistoryMisfit:
    """The error for a recorded result, failure or start that the code did not ask for, or with other arguments."""
    recorded = f"a {what} of step {name!r} at place {place}"
    if ask is not None:
        shown = ask.raw[:200].decode(errors="replace")
        asked = f"asked for it with {shown} (if the code is unchanged: sets of texts have no order, use sorted())"
        return HistoryMisfit(f"{recorded} for other arguments", asked)
    return HistoryMisfit(recorded, f"asked for {_listed('step', (f'{n} at {p}' for n, p in loop.open))}")


def _listed(what: str, found: Iterable[str]) -> str:
    names = list(found)
    if not names:
        return f"no {what}"
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{what} " + ", ".join(names[:5]) + more
