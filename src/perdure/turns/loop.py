"""The turn loop: a small deterministic event loop that gives a process's code its turns.

What would be I/O elsewhere is an output here: steps become asks, sleeping becomes timers. What comes back is delivered
in the recorded order, so replay arrives at the same place. Nothing here blocks, and nothing reads a clock.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perdure.errors import HistoryMisfit, PayloadError
from perdure.kernel import payload as payloads
from perdure.kernel.failure import Failure
from perdure.kernel.message import MessageType
from perdure.turns import current, eviction, saga
from perdure.turns.ask import Ask, fail, promised, resolve, when_resolved
from perdure.turns.bare_loop import BareLoop, TurnTask, current_task
from perdure.turns.current import current_turn, turn_running
from perdure.turns.mailbox import Mailbox
from perdure.turns.sandbox import overrides

if TYPE_CHECKING:
    from random import Random

    from perdure.authoring.step import Step
    from perdure.kernel.payload import CallShape
    from perdure.turns.patches import Patches
    from perdure.turns.publication import Publications

__all__ = ["Ask", "TurnLoop", "current_turn", "turn_running"]

_AWAITING_LENGTH = 200


class OutgoingSignal(Struct, frozen=True, gc=False):
    """A signal that the code wants sent: from which place, to whom (an id), with what."""

    place: str
    target: bytes
    name: str
    payload: bytes
    key: str | None


class TurnLoop(BareLoop):
    """The event loop of one process in memory.

    ``asks`` are the steps newly asked for, ``away`` the children and queued steps newly asked for, ``dropped`` those
    that the code took back, ``stops`` the children that it asked to end, and ``outgoing`` the signals that it sends;
    whoever runs the turns takes them and clears the lists.
    ``open`` holds every ask not yet answered, by (name, place). ``state`` is what the code
    last gave to ``set_state``, as a payload. ``finished`` says that the workflow and all its tasks have ended,
    ``cancelled`` that it ended by cancellation. ``runs`` counts turns, ``saga`` holds what there is to undo, and
    ``shape`` checks the result. ``past`` is the number of the recorded turn that is being replayed, if one is.
    ``renewal`` are the arguments with which it goes on in a new run, ``late`` the wishes to cancel that came too late.
    ``publications`` are what the code shows of itself. ``received`` are numbers and names of the letters that the code
    has taken and the history does not have yet; up to the number ``backlog`` letters may wait in the store. ``fired``
    are the places of the recorded timers while a history is replayed.
    """

    __slots__ = (
        "_chance",
        "_held",
        "asks",
        "away",
        "backlog",
        "cancelled",
        "dropped",
        "error",
        "finished",
        "fired",
        "late",
        "mailboxes",
        "open",
        "outgoing",
        "past",
        "patches",
        "publications",
        "received",
        "renewal",
        "result",
        "runs",
        "saga",
        "seed",
        "shape",
        "state",
        "stopping",
        "stops",
    )  # fmt: skip

    def __init__(self, process_id: bytes, seed: bytes) -> None:
        super().__init__(process_id)
        self.seed = seed
        self.asks: list[Ask[Any]] = []
        self.away: list[Ask[Any]] = []
        self.dropped: list[Ask[Any]] = []
        self.stops: list[Ask[Any]] = []
        self.outgoing: list[OutgoingSignal] = []
        self.stopping: set[tuple[str, str]] = set()
        self.open: dict[tuple[str, str], Ask[Any]] = {}
        self.mailboxes: dict[str, Mailbox] = {}
        self.state: bytes | None = None
        self.finished = False
        self.cancelled = False
        self.error: BaseException | None = None
        self.result: Any = None
        self.runs = 0
        self.saga: saga.Whole | None = None
        self.shape: CallShape | None = None
        self.renewal: bytes | None = None
        self.late: tuple[int, ...] = ()
        self.received: list[tuple[int, str]] = []
        self.backlog = 0
        self.fired: frozenset[str] | None = None
        self.past: int | None = None
        self.patches: Patches | None = None
        self.publications: Publications | None = None
        self._chance: Random | None = None
        self._held = False

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

        Raises WorkflowMisuse if the code turns in a circle; the loop is then good for nothing but :meth:`evict`.
        """
        if self.finished:
            return
        if self.dead or self.root is None:
            raise RuntimeError("a turn cannot run before begin() or after evict()")
        self.now = now
        self.runs += 1
        if self._held:
            self._turn()
            return
        before = current.enter(self)
        try:
            self._turn()
        finally:
            current.leave(before)

    def _turn(self) -> None:
        self.drain()
        root = self.root
        if root is not None and root.done():
            del root
            while not self.finished and eviction.wind_up(self):
                self.drain()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the running loop for several turns in a row, as in a replay: saves a microsecond for each."""
        before = current.enter(self)
        self._held = True
        try:
            yield
        finally:
            self._held = False
            current.leave(before)

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
            self.saga = None  # it knows this loop: without this cut only the collector could free both
            return
        before = current.enter(self)
        try:
            eviction.evict(self)
        finally:
            current.leave(before)

    # -- what comes in -------------------------------------------------------------------------------------------------

    def step_done(self, place: str, name: str, digest: bytes | None, payload: bytes | None) -> None:
        """Deliver a step's result; raises HistoryMisfit if the code asked for no such step, or with other arguments.

        An ask that the code has taken back is not open any more: look into ``open`` before delivering a live result.
        """
        ask = self.open.pop((name, place), None)
        if ask is None or (digest is not None and digest != ask.digest):
            raise misfit(self, "result", place, name, ask)
        try:
            value = ask.step.shape.decode_result(payload or b"null")
        except PayloadError as error:
            raise HistoryMisfit(f"a result of step {name!r} at place {place}", f"cannot read it ({error})") from error
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
        self.ready.append((timer.callback, timer.args, timer.context))
        timer.callback = None

    def message(self, type: MessageType, name: str, payload: bytes, number: int = 0, *, recorded: bool = True) -> None:
        """Deliver a message: a signal or a call goes to its mailbox, a cancel to what the workflow awaits.

        A letter that nobody awaits is not ``recorded`` yet: it is told by ``received`` when the code takes it.
        """
        if type is not MessageType.CANCEL:
            self.mailbox(name).put((payload, number, type is MessageType.CALL, recorded))
        elif self.root is None or not self.root.cancel():
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
        nouns = ((ask, "undo" if isinstance(ask, saga.UndoAsk) else ask.step.noun) for ask in self.open.values())
        waits = dict.fromkeys(f"{noun} {ask.name}" for ask, noun in nouns)
        waits.update(dict.fromkeys(f"signal {box.name}" for box in self.mailboxes.values() if box.awaited))
        if self.timers.open:
            waits["timer"] = None
        text = ", ".join(waits) or "nothing that a step, a timer or a signal could bring"
        return text if len(text) <= _AWAITING_LENGTH else text[: _AWAITING_LENGTH - 1] + "…"

    # -- what steps and in-turn functions use --------------------------------------------------------------------------

    def ask(self, step: Step[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Ask[Any]:
        """Ask for a step from the place where the code is now; raises InvalidInput for unfit arguments."""
        task = current_task(self)
        if type(task) is not TurnTask:
            if self.dead:
                return self._void(step)
            task = self.asker(task)
        name = step.name
        counts = task.counts
        counts[name] = count = counts.get(name, 0) + 1
        ask: Ask[Any] = Ask(loop=self)  # type: ignore[arg-type]
        ask.step = step
        ask.name = name
        ask.place = place = task.prefix + str(count)
        ask.number = self.numbers = self.numbers + 1
        ask.raw = b""
        shape = step.shape
        try:
            ask.raw, ask.args, ask.kwargs = shape.copy(args, kwargs)
        except ValueError:
            ask.args, ask.kwargs, waits = promised(args, kwargs)
            if not waits:
                raise
            when_resolved(ask, waits)
            return ask
        ask.digest = payloads.digest(ask.raw)
        self.open[name, place] = ask
        (self.away if step.away else self.asks).append(ask)
        if step.undo is not None:
            saga.owe(self, ask, step.undo)
        return ask

    def _void(self, step: Step[Any, Any]) -> Ask[Any]:
        """What the dead get for asking: nothing, ever."""
        ask: Ask[Any] = Ask(loop=self)  # type: ignore[arg-type]
        ask.step, ask.name, ask.place, ask.number, ask.raw = step, step.name, "", 0, b""
        return ask

    def put(self, ask: Ask[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Ask for a step whose promised arguments are known now; raises InvalidInput if they are unfit."""
        shape = ask.step.shape
        ask.raw, ask.args, ask.kwargs = shape.copy(args, kwargs)
        ask.digest = payloads.digest(ask.raw)
        self.open[ask.name, ask.place] = ask
        (self.away if ask.step.away else self.asks).append(ask)
        if ask.step.undo is not None:
            saga.owe(self, ask, ask.step.undo)

    def take_back(self, ask: Ask[Any]) -> None:
        """Note that the code has cancelled an ask; one cancelled in the turn that made it was never asked for."""
        if self.open.pop((ask.name, ask.place), None) is None:
            return
        for new in (self.asks, self.away):
            if ask in new:
                new.remove(ask)
                if ask.step.undo is not None:
                    saga.never_began(self, ask)
                return
        self.dropped.append(ask)

    def ask_to_end(self, ask: Ask[Any]) -> bool:
        """Ask a child to end, once; whoever awaits it is cancelled when it has. False: there is nobody to be asked."""
        slot = ask.name, ask.place
        if self.dead or self.finished or slot not in self.open or ask in self.away:
            return False
        if slot not in self.stopping:
            self.stopping.add(slot)
            self.stops.append(ask)
        return True

    def mailbox(self, name: str) -> Mailbox:
        """The mailbox of the signals of that name."""
        box = self.mailboxes.get(name)
        if box is None:
            box = self.mailboxes[name] = Mailbox(name, self.backlog)
        return box

    @property
    def chance(self) -> Random:
        """The process's own source of chance, made from its seed."""
        if self._chance is None:
            self._chance = overrides.chance(self.seed)
        return self._chance


def misfit(loop: TurnLoop, what: str, place: str, name: str, ask: Ask[Any] | None) -> HistoryMisfit:
    """What is wrong if the history has a result, a failure or a start that the code did not ask for, or not so."""
    recorded = f"a {what} of step {name!r} at place {place}"
    if ask is not None:
        shown = ask.raw[:200].decode(errors="replace")
        return HistoryMisfit(f"{recorded} for other arguments", f"asked for it with {shown}")
    return HistoryMisfit(recorded, f"asked for {_listed('step', (f'{n} at {p}' for n, p in loop.open))}")


def _listed(what: str, found: Iterable[str]) -> str:
    names = list(found)
    if not names:
        return f"no {what}"
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{what} " + ", ".join(names[:5]) + more
