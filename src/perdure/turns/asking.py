"""An asking loop: what workflow code asks for in a turn, kept until the runtime takes it.

Steps, children, signals and orders to end a child are outputs: the runtime takes them after each turn.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perdure.kernel.context import of_sender
from perdure.turns import saga
from perdure.turns.ask import Ask, promised, when_resolved
from perdure.turns.bare_loop import BareLoop, TurnTask, current_task
from perdure.turns.mailbox import Mailbox

if TYPE_CHECKING:
    from perdure.kernel.call_shape import CallShape
    from perdure.turns.ask import AskedStep
    from perdure.turns.patches import Patches
    from perdure.turns.publication import Publications
    from perdure.turns.timer import Timer


LOOK = " look"
"""Looks are counted apart from timers, and all of them: whether one needs a timer the store says, not the code."""


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class OutgoingSignal(Struct, frozen=True, gc=False):
    """A signal that the code sends: from which place, to which process (an id), with what."""

    place: str
    target: bytes
    name: str
    payload: bytes
    key: str | None
    context: str | None = None


class Outputs:
    """What the code has asked for, besides the steps that are run here.

    ``away`` are children and queued steps, ``dropped`` the asks that the code cancelled, ``stops`` the children that
    are asked to end, and ``outgoing`` the signals that the code sends.
    """

    __slots__ = ("away", "dropped", "outgoing", "stops")

    def __init__(self) -> None:
        self.away: list[Ask[Any]] = []
        self.dropped: list[Ask[Any]] = []
        self.stops: list[Ask[Any]] = []
        self.outgoing: list[OutgoingSignal] = []


class _Everywhere:
    """All places."""

    def __contains__(self, place: object) -> bool:
        return True


EVERYWHERE: Container[str] = _Everywhere()
"""Where a run looks of which no turn is on record: each time that it begins anew it decides the same."""


class AskingLoop(BareLoop):
    """The part of the turn loop that steps, children and the verbs of a turn use.

    ``open`` holds every ask not yet answered, by its slot; ``stopping`` has the slots of those that were asked to end.
    ``state`` is what the code last gave to ``set_state``, as a payload. ``finished`` says that the workflow and all its
    tasks have ended, ``cancelled`` that a cancellation ended them; otherwise ``error`` or ``result`` says how.
    ``renewal`` are the arguments with which the workflow continues as new, ``late`` the cancels that came too late.
    ``unwanted`` is set with the ``error``: whether the process had been asked to cancel by then.
    ``runs`` counts turns, and ``shape`` checks the result. ``saga`` holds what there is to undo, ``publications`` what
    the code publishes, ``patches`` which patches it takes. ``keeps`` says that a step which keeps its arguments was
    asked for, ``looks`` are the places of those looks for letters that were cut short, and ``notes`` says that there is
    one of these five. ``machine`` is what runs a machine's methods. ``received`` are
    numbers and names of the letters that the code has received and the history does not have yet; letters up to the
    number ``backlog`` may wait in the store. While a history is replayed, ``past`` is the number of the recorded turn,
    if there is one, and ``fired`` are the places of the recorded timers. ``context`` is the text of the context in
    which the code runs, ``contexts`` are those that came with letters, by their numbers.
    """

    __slots__ = (
        "_asks", "_chance", "_outputs", "backlog", "cancelled", "context", "contexts",
        "error", "finished", "fired", "keeps", "late", "looks", "machine",
        "mailboxes", "notes", "open", "past", "patches", "publications", "received", "renewal", "result", "runs",
        "saga", "seed", "shape", "state", "stopping", "unwanted",
    )  # fmt: skip

    unwanted: bool

    def __init__(self, process_id: bytes, seed: bytes, backlog: int = 0) -> None:
        super().__init__(process_id)
        self.seed = seed
        self._asks: list[Ask[Any]] = []
        self._outputs: Outputs | None = None
        self.received: list[tuple[int, str]] = []
        self.stopping: set[tuple[str, str]] = set()
        self.open: dict[tuple[str, str], Ask[Any]] = {}
        self.mailboxes: dict[str, Mailbox] = {}
        self.state: bytes | None = None
        self.finished = False
        self.cancelled = False
        self.error: BaseException | None = None
        self.result: Any = None
        self.renewal: bytes | None = None
        self.late: tuple[int, ...] = ()
        self.runs = 0
        self.saga: saga.Whole | None = None
        self.shape: CallShape | None = None
        self.backlog = backlog
        self.fired: Container[str] | None = None
        self.past: int | None = None
        self.patches: Patches | None = None
        self.publications: Publications | None = None
        self.notes = False
        self.keeps = False
        self.looks: tuple[str, ...] = ()
        self.machine: Any = None
        self.context: str | None = None
        self.contexts: dict[int, str] | None = None
        self._chance: Random | None = None

    # -- what the runtime takes --------------------------------------------------------------------------------------

    def take_outputs(self) -> tuple[list[Ask[Any]], Outputs | None]:
        """Take what the code has asked for since the last time: steps to be run here, and all else, if there is any."""
        asks, self._asks = self._asks, []
        outputs = self._outputs
        if outputs is not None:
            self._outputs = None
        return asks, outputs

    def _others(self) -> Outputs:
        """What was asked for besides steps; made at first use."""
        if self._outputs is None:
            self._outputs = Outputs()
        return self._outputs

    def take_received(self) -> list[tuple[int, str]]:
        """Take the letters that the code has received since the last time."""
        received, self.received = self.received, []
        return received

    # -- what steps and in-turn functions use --------------------------------------------------------------------------

    def ask(self, step: AskedStep, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Ask[Any]:
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
        ask.slot = slot = (name, place)
        ask.number = self.numbers = self.numbers + 1
        ask.raw = b""
        shape = step.shape
        try:
            ask.raw, ask.digest, ask.args, ask.kwargs = shape.copy(args, kwargs)
        except ValueError:
            ask.args, ask.kwargs, waits = promised(args, kwargs)
            if not waits:
                raise
            when_resolved(ask, waits)
            return ask
        self.open[slot] = ask
        if step.plain:
            self._asks.append(ask)
        else:
            self._put(ask)
        return ask

    def rulings(self, state: str, action: Any) -> Mapping[str, Any]:
        """What policies set for an action of a flow in that state, by property: nothing here, the worker has none."""
        return _NOTHING

    def limit(self, state: str, timed: Any) -> float | None:
        """For how many seconds a flow may be in a state, or on a stretch that begins there: as the code says, here."""
        seconds: float | None = timed.timeout
        return seconds

    def _void(self, step: AskedStep) -> Ask[Any]:
        """An ask that never resolves, for the code of an evicted process."""
        ask: Ask[Any] = Ask(loop=self)  # type: ignore[arg-type]
        ask.step, ask.name, ask.place, ask.number, ask.raw = step, step.name, "", 0, b""
        ask.slot = step.name, ""
        return ask

    def put(self, ask: Ask[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Ask for a step whose promised arguments are known now; raises InvalidInput if they are unfit."""
        shape = ask.step.shape
        ask.raw, ask.digest, ask.args, ask.kwargs = shape.copy(args, kwargs)
        self.open[ask.slot] = ask
        self._put(ask)

    def _put(self, ask: Ask[Any]) -> None:
        step = ask.step
        (self._others().away if step.away else self._asks).append(ask)
        if step.undo is not None:
            saga.owe(self, ask, step.undo)
        if step.keep_arguments:
            self.keeps = self.notes = True

    def ask_for_undo(self, undo: Ask[Any]) -> None:
        """Ask for the step that undoes another one: it is run here, or waits here until it may be queued."""
        self.open[undo.slot] = undo
        self._asks.append(undo)
        if undo.step.keep_arguments:
            self.keeps = self.notes = True

    def take_back(self, ask: Ask[Any]) -> None:
        """Note that the code has cancelled an ask; one cancelled in the turn that made it was never asked for."""
        if self.open.pop(ask.slot, None) is None:
            return
        others = self._others()
        for new in (self._asks, others.away):
            if ask in new:
                new.remove(ask)
                if ask.step.undo is not None:
                    saga.never_began(self, ask)
                return
        others.dropped.append(ask)

    def ask_to_end(self, ask: Ask[Any]) -> bool:
        """Ask a child to end, once; its awaiter is cancelled when it has ended. False if there is no child to ask."""
        slot = ask.slot
        if self.dead or self.finished or slot not in self.open or ask in self._others().away:
            return False
        if slot not in self.stopping:
            self.stopping.add(slot)
            self._others().stops.append(ask)
        return True

    def send(self, signal: OutgoingSignal) -> None:
        """Send a signal with the commit of this turn; an evicted process sends nothing."""
        if not self.dead:
            self._others().outgoing.append(signal)

    def heard_from(self, number: int, sender: bytes) -> None:
        """Keep the context that came with the letter of that number, if one did."""
        text = of_sender(sender)
        if text is not None:
            self.contexts = self.contexts or {}
            self.contexts[number] = text

    def take_context(self, number: int) -> str | None:
        """The context that came with the letter of that number, which the code receives now."""
        return None if self.contexts is None else self.contexts.pop(number, None)

    def receive(self, number: int, name: str) -> None:
        """Note that the code has received a letter that the history does not have yet."""
        self.received.append((number, name))

    def look(self, more: bool) -> str:
        """The place of the timer for which a receiver without time waits while its letters are read from the store.

        Empty if there are no ``more`` in the store. A replay does not ask the store: it looks where the history did.
        The first turn of a later run looks everywhere, since what the run before has left was not read yet.
        """
        place = self.place(LOOK) + LOOK
        looks = more and not self.dead if self.fired is None else place in self.fired
        return place if looks else ""

    def end_look(self, timer: Timer) -> None:
        """Cancel the timer of a look. One that was cut short is noted, for a replay has to look there too."""
        if not (timer.cancelled() or self.dead) and self.fired in (None, EVERYWHERE):
            self.looks += (timer.place,)
            self.notes = True
        timer.cancel()

    def mailbox(self, name: str) -> Mailbox:
        """The mailbox of the signals of that name."""
        box = self.mailboxes.get(name)
        if box is None:
            box = self.mailboxes[name] = Mailbox(name, self.backlog)
        return box

    def open_branch(self, number: int) -> None:
        """Let the root ask from places of its own for its part of that number, as if it began here."""
        root = self.root
        assert root is not None
        root.branch = f".0.{number}"  # a task's first child has the branch .1
        root.prefix = f"{root.branch}:"
        root.children = 0
        root.counts = {}
        self._chance = None

    def count_anew(self) -> None:
        """Begin again to number what is made: sets iterate alike however the code has come to where it is."""
        self.numbers = int.from_bytes(self.process_id[-6:], "big") << 12

    @property
    def chance(self) -> Random:
        """The process's own source of random numbers, made from its seed."""
        if self._chance is None:
            part = "" if self.root is None else self.root.branch
            self._chance = Random(self.seed + part.encode())
        return self._chance

    @chance.setter
    def chance(self, source: Random) -> None:
        self._chance = source
