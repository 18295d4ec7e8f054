"""An outbox: the children, queued steps and signals that a process sends with its commits, and the answers to them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import json

from perdure import limits
from perdure.clock import Computer, microseconds
from perdure.kernel import child, notice
from perdure.kernel.commit import Commit, Start
from perdure.kernel.context import carrying
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import Message, MessageType
from perdure.kernel.names import id_text
from perdure.kernel.transition import Sender
from perdure.kernel.undo import undoes
from perdure.turns.asking import OutgoingSignal, Outputs
from perdure.turns.loop import Ask, TurnLoop, misfit
from perdure.turns.saga import UndoAsk

if TYPE_CHECKING:
    from perdure.kernel.process import Process
    from perdure.runtime.open_steps import OpenSteps, Slot

HOLD = microseconds(limits.CHILD_HOLD_SECONDS)

Stray: TypeAlias = tuple[bytes, bytes | None]
"""A child by its id, with the digest of its arguments."""
StopOrder: TypeAlias = Callable[[bytes, bytes], Message]
"""Makes the message that orders a child to end, from the child's id and its parent's."""


class OutboxOwner(Protocol):
    """The process whose outbox it is, as the outbox sees it: ``at`` is the time of its turn."""

    process: Process
    loop: TurnLoop
    steps: OpenSteps
    at: int

    def idempotency_key(self, ask: Ask[Any]) -> str:
        """The key that all attempts of the step carry."""

    def deliver(self, type: EventType, ask: Ask[Any], payload: bytes | None) -> None:
        """What was asked for has been answered: that opens the next turn."""

    def note(
        self,
        type: EventType,
        now: int,
        payload: bytes | None,
        *,
        name: str = "",
        place: str = "",
        digest: bytes | None = None,
    ) -> None:
        """Record evidence that belongs to no turn."""


class Outbox:
    """The children of one process in memory. ``out`` holds those started and not yet answered: slot by the child's id.

    ``patience`` is the store's time until which the process stays in memory while it waits for nothing but children.
    ``started`` counts the children of this run, including those kept from the run before.
    """

    __slots__ = (
        "_digests", "_doomed", "_early", "_ids", "_letters", "_new", "_outgoing", "_sent", "_starts", "_stops",
        "_strays", "out", "patience", "started",
    )  # fmt: skip

    def __init__(self) -> None:
        self.out: dict[bytes, Slot] = {}
        self.patience = 0
        self.started = 0
        self._digests: dict[Slot, bytes | None] = {}  # of the children of this run, as the history has them
        self._doomed: dict[bytes, bytes | None] = {}  # children of the run before, which may have been asked to end
        self._strays: dict[Slot, Stray] = {}  # others of that run, which live on: the code has not reached their places
        self._early: dict[bytes, Slot | bytes] = {}  # of these, by their ids: the place, and once known the result
        self._ids: dict[Slot, bytes] = {}
        self._new: list[Ask[Any]] = []
        self._stops: list[tuple[Slot, StopOrder]] = []
        self._outgoing: list[OutgoingSignal] = []
        self._sent: set[str] = set()
        self._starts: list[Start] = []
        self._letters: list[Message] = []

    @property
    def pending(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._new or self._stops or self._outgoing or self._starts or self._letters)

    @property
    def overfull(self) -> bool:
        """Whether more waits than one commit takes."""
        new, outgoing = self._portions()
        return new < len(self._new) or outgoing < len(self._outgoing) or len(self._stops) > limits.OUTBOX_RECORDS

    def _portions(self) -> tuple[int, int]:
        """How many of the new children and of the signals go into the next commit."""
        return _portion(len(ask.raw) for ask in self._new), _portion(len(signal.payload) for signal in self._outgoing)

    def gather(self, parent: OutboxOwner, outputs: Outputs) -> None:
        """Collect the children that the code has asked for, those that it wants to end, and the signals it sends."""
        self._outgoing += outputs.outgoing
        if self._strays:
            self._new += [ask for ask in outputs.away if not self._found(parent, ask)]
        else:
            self._new += outputs.away
        self._stops += ((ask.slot, child.cancel) for ask in outputs.stops)
        if parent.loop.finished:
            self._part(parent.loop)

    def put(self, undo: Ask[Any]) -> None:
        """Ask for an undo that waits in a queue."""
        self._new.append(undo)

    def _found(self, parent: OutboxOwner, ask: Ask[Any]) -> bool:
        """Whether the code asks for a child of the run before that has lived on: then that child is taken."""
        slot = ask.slot
        id, digest = self._strays.pop(slot, (b"", None))
        if not id or digest not in (None, ask.digest):
            return False
        result = self._early.pop(id)
        if isinstance(result, bytes):
            parent.deliver(EventType.STEP_COMPLETED, ask, result)
        else:
            self._ids[slot] = id
            self.out[id] = slot
        return True

    def _part(self, loop: TurnLoop) -> None:
        """The parent has ended: order its children to end too, except those that it abandons."""
        asks = loop.open
        self._new = [ask for ask in self._new if _goes_on(ask)]
        bound = [(slot, _stop(asks[slot])) for slot in self.out.values() if slot in asks and not _goes_on(asks[slot])]
        self._stops = list(dict.fromkeys((*self._stops, *bound)))

    def dropped(self, ask: Ask[Any]) -> None:
        """The code no longer wants a queued step: cancel it; its answer will not count."""
        slot = ask.slot
        if slot in self._ids:
            self._stops.append((slot, child.cancel))
        else:
            self._new = [new for new in self._new if new is not ask]

    def dispatch(self, parent: OutboxOwner, machine: Computer) -> tuple[tuple[Start, ...], tuple[Message, ...]]:
        """Take what goes out with the next commit; each child is noted in the history, so no replay starts it again."""
        open = parent.loop.open
        deeper = child.depth(parent.process.id) + 1
        children, signals = self._portions()
        new, self._new = self._new[:children], self._new[children:]
        for ask in new:
            slot = ask.slot
            if slot not in open:
                continue
            id = child.descended(machine.new_id(), deeper)
            key = parent.idempotency_key(ask)
            if isinstance(ask, UndoAsk):
                ask.undoes = parent.idempotency_key(ask.owed.ask)
            process = ask.asked.process(id, ask, parent.process, key, parent.at)
            if parent.loop.context is not None:
                process = carrying(process, parent.loop.context)
            self._starts.append(Start(process))
            begun = child.ChildBegun(id_text(id), _goes_on(ask), _stop(ask) is child.terminate).encode()
            type, at, digest = EventType.CHILD_STARTED, parent.at, ask.digest
            parent.note(type, at, begun, name=ask.name, place=ask.place, digest=digest)
            self.started += 1
            self._ids[slot] = id
            self.out[id] = slot
        stops, self._stops = self._due_stops()
        for slot, stop in stops:
            self._letters.append(stop(self._ids[slot], parent.process.id))
            if slot not in open:
                self.out.pop(self._ids[slot], None)
        outgoing, self._outgoing = self._outgoing[:signals], self._outgoing[signals:]
        for signal in outgoing:
            self._letters.append(_signal(parent, signal))
            parent.note(EventType.SIGNAL_SENT, parent.at, _to(signal), name=signal.name, place=signal.place)
        starts, self._starts = tuple(self._starts), []
        letters, self._letters = tuple(self._letters), []
        if starts or letters:
            self.patience = parent.at + HOLD
        return starts, letters

    def _due_stops(self) -> tuple[list[tuple[Slot, StopOrder]], list[tuple[Slot, StopOrder]]]:
        """The orders to end that are written now, and those that are written later.

        A child that still waits to be started is started first; one that has answered meanwhile needs no order.
        """
        if not self._stops:
            return [], []
        waiting = {ask.slot for ask in self._new}
        begun = [(slot, stop) for slot, stop in self._stops if slot in self._ids]
        later = [(slot, stop) for slot, stop in self._stops if slot not in self._ids and slot in waiting]
        return begun[: limits.OUTBOX_RECORDS], begun[limits.OUTBOX_RECORDS :] + later

    def restore(self, commit: Commit) -> None:
        """A commit was not applied and will be made again: the starts and messages that it carried wait again.

        What it told of its own process, it tells when it is made again.
        """
        own = notice.ids(commit.after) | {commit.after.id}
        self._starts += commit.starts
        self._letters += (letter for letter in commit.sends if letter.id not in own)

    def take(self, message: Message, loop: TurnLoop, at: int) -> Ask[Any] | None:
        """A child has answered: return the ask that it answers, or None if the answer comes too late.

        A child that was cancelled because the run before had ended is asked for again.
        """
        slot = self.out.pop(message.id, None)
        ask = None if slot is None else loop.open.get(slot)
        ended = message.type is MessageType.CANCELLED and message.id in self._doomed
        if ask is not None and ended and not loop.finished and slot not in loop.stopping:
            del self._ids[ask.slot]
            self._new.append(ask)
            ask = None
        if ask is not None:
            self._ids.pop(ask.slot, None)
            self.patience = at + HOLD
        else:
            self._keep(message)
        return ask

    def _keep(self, message: Message) -> None:
        """Keep the answer of a child that lives on from the run before, in case the code reaches its place.

        Only a result is kept: for a child that has failed or was cancelled, the code gets a fresh one.
        """
        slot = self._early.get(message.id)
        if isinstance(slot, tuple) and message.type is MessageType.RESULT:
            self._early[message.id] = message.payload
        elif isinstance(slot, tuple):
            self._strays.pop(slot, None)

    def ignored(self, message: Message) -> None:
        """A replay has reached an answer that was ignored: the code does not wait for that child any more."""
        slot = self.out.pop(message.id, None)
        if slot is not None:
            self._ids.pop(slot, None)
        self._keep(message)

    def recall(self, event: Event, kept: bool) -> None:
        """A replay has reached the start of a child, of this run or ``kept`` from the one before, or a signal sent."""
        if event.type is EventType.SIGNAL_SENT:
            self._sent.add(event.place)
            return
        begun = child.begun(event)
        id = begun.id_bytes
        slot = event.name, event.place
        self.started += 1
        self.out.pop(self._ids.get(slot, b""), None)  # the code has asked for another one in its place
        self._strays.pop(slot, None)
        if kept and begun.abandoned:
            self._strays[slot] = id, event.digest
            self._early[id] = slot
        elif kept:
            self._doomed[id] = event.digest
        else:
            self._digests[slot] = event.digest
        self._ids[slot] = id
        self.out[id] = slot

    def replayed(
        self,
        parent: OutboxOwner,
        awaited: list[Ask[Any]],
        asked: Container[Slot],
        outgoing: Sequence[OutgoingSignal],
        unwanted: Iterable[Ask[Any]],
    ) -> None:
        """A replay has ended: start the ``awaited`` children that were never started, and send what was never sent.

        ``asked`` are all children that the code has asked for. A child under way that is none of them would be
        forgotten: it is a misfit (rule 19). An undo is exempt, since the history asks for it. A child of the run before
        that was asked for with other arguments is not what the code waits for now: it is asked to end.

        The orders to end are sent once more, also to the ``unwanted`` queued steps that have not answered: the history
        does not say whether they were sent, and a child hears each of them only once.
        """
        loop = parent.loop
        for slot in self.out.values():
            if slot in self._digests and slot not in asked and slot not in loop.open and undoes(slot[1]) is None:
                raise misfit(loop, "start", slot[1], slot[0], None)
        for slot in self._strays:
            self.out.pop(self._ids.pop(slot, b""), None)
        awaited = [ask for ask in awaited if not self._found(parent, ask)]
        self.out = {id: slot for id, slot in self.out.items() if slot in loop.open}
        for id, slot in list(self.out.items()):
            if self._doomed.get(id) not in (None, loop.open[slot].digest):
                del self.out[id], self._ids[slot]
                self._letters.append(child.cancel(id, parent.process.id))
        for name, place in self.out.values():
            ask = loop.open[name, place]
            if self._digests.get((name, place)) not in (None, ask.digest):
                raise misfit(loop, "start", place, name, ask)
        self._new = [ask for ask in awaited if ask.slot not in self._ids]
        self._stops = [(slot, child.cancel) for slot in loop.stopping]
        self._stops += ((ask.slot, child.cancel) for ask in unwanted if ask.slot in self._ids)
        self.patience = parent.at + HOLD
        self._outgoing = [signal for signal in outgoing if signal.place not in self._sent]
        if loop.finished:  # its last turn was written without its end: which children were told is not in the history
            self._part(loop)


def _portion(sizes: Iterable[int]) -> int:
    """How many records one commit takes, by their number and their bytes; always one, if there is one."""
    total = count = 0
    for size in islice(sizes, limits.OUTBOX_RECORDS):
        total += size
        if count and total > limits.BATCH_BYTES:
            break
        count += 1
    return count


def _signal(parent: OutboxOwner, signal: OutgoingSignal) -> Message:
    """The message of a signal, whose id follows from its place: the receiver knows it if it is sent again."""
    who = f"process {id_text(parent.process.id)}"
    sender = Sender(who, origin="workflow", context=signal.context or "")
    run = parent.steps.first_run((" tell", signal.place))
    key = f"{run}/{signal.place}".encode()
    id = blake2b(key, digest_size=16, key=parent.process.id, person=b"tell").digest()
    return Message(id, signal.target, MessageType.SIGNAL, signal.name, signal.payload, signal.key, sender.encode())


def _to(signal: OutgoingSignal) -> bytes:
    return json.encode({"to": id_text(signal.target)})


def _stop(ask: Ask[Any]) -> StopOrder:
    """The order that a child gets when its parent has ended."""
    return child.terminate if ask.asked.on_parent_end == "terminate" else child.cancel


def _goes_on(ask: Ask[Any]) -> bool:
    return ask.asked.on_parent_end == "abandon"
