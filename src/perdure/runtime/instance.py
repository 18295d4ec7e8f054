"""An instance: one process in the memory of its worker, its code, and what has happened but is not yet written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import json

from perdure.authoring.task import QueueWork, task_of
from perdure.kernel import integrity
from perdure.kernel.child import ANSWERS, ORDERS
from perdure.kernel.command import sooner, until_of
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import Message, MessageType
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.kernel.retry import FailedAttempt
from perdure.runtime import compensation, inbox, turn_commit
from perdure.runtime.outbox import Outbox
from perdure.runtime.steps import transactional
from perdure.turns.loop import Ask, TurnLoop

if TYPE_CHECKING:
    from perdure.authoring.workflow import Workflow
    from perdure.runtime.steps.attempt_run import AttemptRun

Input = tuple[EventType, Any, bytes | None]
"""What opens a turn: (STEP_COMPLETED or STEP_FAILED, the ask, payload) or (MESSAGE_RECEIVED, the message, None)."""

Slot = tuple[str, str]
"""A step's identity in its process: its name and its place."""

_COMPLETED, _MESSAGE, _TERMINATE = EventType.STEP_COMPLETED, EventType.MESSAGE_RECEIVED, MessageType.TERMINATE

NOTHING: Any = MappingProxyType({})
"""Stands in for a dict until there is something to keep: thousands of instances are alive at once."""


class Instance:
    """One process in hand. ``process`` is the row as last committed; everything else is what came since."""

    __slots__ = (
        "alarm",
        "asked",
        "at",
        "attempts",
        "commit",
        "consumed",
        "events",
        "fetching",
        "gone",
        "heard",
        "in_flight",
        "inherited",
        "inputs",
        "lease_end",
        "leaving",
        "loop",
        "not_before",
        "number",
        "origins",
        "outbox",
        "patience",
        "process",
        "queued",
        "releasing",
        "reported",
        "resumed",
        "retries",
        "seen",
        "told",
        "trouble",
        "turns",
        "unheard",
        "until",
        "void",
        "warned",
        "workflow",
    )

    def __init__(self, process: Process, workflow: Workflow[Any, Any], loop: TurnLoop) -> None:
        self.process = process
        self.workflow = workflow
        self.loop = loop
        self.number = process.events
        self.turns = 0
        self.at = 0
        self.events: list[Event] = []
        self.consumed: dict[int, int] = NOTHING  # by which event; 0 is a letter that nobody has received
        self.seen = process.seen  # the highest number that a turn has heard
        self.fetching = False  # somebody waits for letters that are to be read from the store
        self.not_before = 0
        self.inputs: list[Input] = []
        self.asked: list[Ask[Any]] = []  # wait for the commit of the turn that asked for them
        self.releasing: list[Ask[Any]] = []  # that commit is in flight, or just applied
        self.in_flight: dict[Slot, AttemptRun] = {}
        self.attempts: dict[Slot, FailedAttempt] = NOTHING
        self.retries: dict[Slot, asyncio.TimerHandle] = NOTHING
        self.reported: dict[str, Any] = NOTHING  # by earlier attempts of steps that are still open
        self.origins: dict[Slot, int] | None = None
        self.outbox: Outbox | None = None
        self.patience = 0  # the store's time until which it stays in hand after a message, see `lingering`
        self.inherited: set[Slot] | None = None
        self.commit: Commit | None = None
        self.heard = process.seen
        self.unheard = 0  # so many messages a commit's answer has told of, which are read before it goes on
        self.queued = False
        self.gone = False
        self.leaving = False
        self.warned = False
        self.trouble: BaseException | None = None
        self.alarm: tuple[int, asyncio.TimerHandle] | None = None
        self.resumed = 0
        self.void = 0
        self.until: int | None = None
        self.lease_end = 0.0
        self.told: Callable[[Any], None] | None = None  # whoever started the process here, until answered

    # -- turns -------------------------------------------------------------------------------------------------

    def begin(self, now: int, input: bytes = b"") -> None:
        """Run the first turn at the opening time of the run; ``input`` is its own, if the process opened it itself."""
        args, kwargs = self.workflow.shape.decode(input or self.process.input)
        self.loop.begin(self.workflow.function, args, kwargs, self.workflow.shape)
        self.at = now
        self.loop.run(now)

    def turn(self, now: int) -> None:
        """Run one turn: the timers that are due, then what has come in, as events; then the code until it waits."""
        loop = self.loop
        now = max(now, self.at)
        self.at = now
        self.turns += 1
        before = self.number
        if loop.timers.open:
            for when, place in loop.due_timers(now):
                self.not_before = max(self.not_before, when)
                self._record(EventType.TIMER_FIRED, place, "timer")
                loop.timer_fired(place)
        inputs, self.inputs = self.inputs, []
        for type, subject, payload in inputs:
            if type is _MESSAGE:
                self._receive(subject)
            elif (subject.name, subject.place) in loop.open:
                self._answer(type, subject, payload)
        if self.number == before:
            self.turns -= (
                1  # letters came that nobody awaits: for the code there was no turn, nor will there be at replay
            )
            return
        loop.run(now)
        if loop.received:
            for number, name in loop.received:
                self.received(number, name)
            loop.received.clear()

    def _answer(self, type: EventType, ask: Ask[Any], payload: bytes | None) -> None:
        self._record(type, ask.place, ask.name, payload, ask.digest)
        self._forget(ask)
        if type is _COMPLETED:
            self.loop.step_done(ask.place, ask.name, ask.digest, payload)
        else:
            self.loop.step_failed(ask.place, ask.name, ask.digest, payload)

    def _receive(self, message: Message) -> None:
        if message.type in ANSWERS:
            ask = None if message.sender is None else transactional.awaited(self, message)
            if ask is None:
                self.outward().take(self, message)
            else:
                self.receive_answer(ask, message)
            return
        if message.type in ORDERS:
            if message.number <= self.void:  # it was meant for an earlier run
                self.receive_answer(None, message)
                return
            until = until_of(message)
            self.until = self.until if until is None else sooner(self.until, until)
            self.received(message.number, message.name)
            self.loop.message(message.type, message.name, message.payload, message.number)
            return
        inbox.hear(self, message)

    def received(self, number: int, name: str) -> None:
        """Record that the code has received a letter, whose payload stays in the inbox."""
        self._record(EventType.MESSAGE_RECEIVED, "", name, None, None, number)
        self._consume(number)
        turn_commit.heard(self)

    def _consume(self, number: int) -> None:
        if not self.consumed:
            self.consumed = {}
        self.consumed[number] = self.number
        if number > self.seen:
            self.seen = number

    def receive_answer(self, ask: Ask[Any] | None, message: Message) -> None:
        """Deliver a child's answer, whose payload stays in the inbox; or note that nobody waits for it."""
        if ask is None:
            type, number = EventType.ANSWER_IGNORED, message.number
            self.number += 1
            self.events.append(Event(self.number, 0, type, self.at, "", message.name, None, None, number))
        else:
            type = EventType.STEP_COMPLETED if message.type is MessageType.RESULT else EventType.STEP_FAILED
            self._record(type, ask.place, ask.name, None, ask.digest, message.number)
            self._forget(ask)
            self.loop.child_ended(ask.place, ask.name, ask.digest, message.type, message.payload)
        self._consume(message.number)

    def _record(
        self,
        type: EventType,
        place: str,
        name: str,
        payload: bytes | None = None,
        digest: bytes | None = None,
        message: int | None = None,
    ) -> None:
        self.number += 1
        self.events.append(Event(self.number, self.turns, type, self.at, place, name, payload, digest, message))

    def hear(self, messages: Sequence[Message]) -> int:
        """Put messages into the next turn, each once, in the order of their numbers; answers how many were new.

        Raises DamagedRecord if one that was sent before another is not there.
        """
        new = 0
        for message in messages:
            if message.number > self.heard:  # whoever was asked for twice is read twice
                if message.number != self.heard + 1:
                    if message.type is _TERMINATE:  # an order to end is told before what stands in front of it
                        continue
                    raise integrity.gap(self.process, self.heard, message)
                self.heard = message.number
                self.inputs.append((EventType.MESSAGE_RECEIVED, message, None))
                new += 1
        return new

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
        """Record evidence for people (a failed attempt, a revival): it belongs to no turn and is not replayed."""
        self.number += 1
        self.events.append(Event(self.number, 0, type, now, place, name, payload, digest))

    def expect(self) -> None:
        """What was asked for waits for the commit that is being written, with what could not be released before."""
        if self.releasing:
            self.releasing += self.asked
        else:
            self.releasing = self.asked
        self.asked = []

    def _forget(self, ask: Ask[Any]) -> None:
        """Let go of everything kept for a step that has been answered or dropped."""
        if self.attempts or self.retries or self.inherited:
            slot = (ask.name, ask.place)
            if slot in self.attempts:
                del self.attempts[slot]
            if slot in self.retries:
                self.retries.pop(slot).cancel()
            if self.inherited:
                self.inherited.discard(slot)
        if self.reported:
            self.reported.pop(f"{ask.name}:{ask.place}", None)

    def tried(self, slot: Slot, failed: FailedAttempt) -> None:
        """Keep what is known of a step's last failed attempt."""
        if self.attempts is NOTHING:
            self.attempts = {}
        self.attempts[slot] = failed

    def wait(self, slot: Slot, retry: asyncio.TimerHandle) -> None:
        """Keep the timer of a step's next attempt."""
        if self.retries is NOTHING:
            self.retries = {}
        self.retries[slot] = retry

    # -- what is left --------------------------------------------------------------------------------------------

    def idempotency_key(self, ask: Ask[Any]) -> str:
        """The key that all attempts of the step carry: it names the run in which the step was first asked for.

        A task has the key of the step which its parent asked for.
        """
        if isinstance(self.workflow, QueueWork):
            return task_of(self.process.input).key
        return f"{id_text(self.process.id)}/{self.first_run(ask.name, ask.place)}/{ask.name}:{ask.place}"

    def first_run(self, name: str, place: str) -> int:
        """The run in which the code first came to this place."""
        return self.process.run if self.origins is None else self.origins.get((name, place), self.process.run)

    def last_progress(self, ask: Ask[Any]) -> Any:
        """What an earlier attempt of the step reported, here or in the hands of another worker."""
        return self.reported.get(f"{ask.name}:{ask.place}", NOTHING).get("reported")

    def keep(self, ask: Ask[Any], attempt_run: AttemptRun) -> None:
        """Keep what an attempt that has failed reported last, for the next one."""
        told = attempt_run.report()
        if told["reported"] is not None:
            if self.reported is NOTHING:
                self.reported = {}
            self.reported[f"{ask.name}:{ask.place}"] = told

    def progress(self) -> bytes | None:
        """What the steps that are open have reported, as the row shows it to people and to the next attempt."""
        told = dict(self.reported)
        for (name, place), attempt_run in self.in_flight.items():
            told[f"{name}:{place}"] = attempt_run.report()
        return json.encode(told) if told else None

    def gather(self) -> None:
        """Collect what the code has asked for in a turn, and let go of what it no longer wants."""
        loop = self.loop
        if loop.patches is not None:
            turn_commit.note_taken(self)
        if loop.publications is not None:
            turn_commit.note(self)
        if loop.saga is not None:
            compensation.note_owed(self)
        if loop.asks:
            if self.origins is not None:
                for ask in loop.asks:
                    self.origins.setdefault((ask.name, ask.place), self.process.run)
            self.asked += loop.asks
            loop.asks.clear()
        if loop.away or loop.stops or loop.outgoing or (self.outbox is not None and loop.finished):
            self.outward().gather(self)
        if loop.dropped:
            for ask in loop.dropped:
                if ask.step.away:
                    self.outward().dropped(ask)
                attempt_run = self.in_flight.pop((ask.name, ask.place), None)
                if attempt_run is not None:
                    attempt_run.stop()
                self._forget(ask)
            loop.dropped.clear()
            self.asked = [ask for ask in self.asked if (ask.name, ask.place) in loop.open]
            self.releasing = [ask for ask in self.releasing if (ask.name, ask.place) in loop.open]

    def outward(self) -> Outbox:
        """What goes out with the commits; made when there is something."""
        if self.outbox is None:
            self.outbox = Outbox()
        return self.outbox

    def handed_over(self, commit: Commit, *, cleared: bool) -> None:
        """All that had happened has gone into a commit; what was asked for waits for its answer."""
        if cleared:
            self.inherited = None
        self.expect()
        self.events = []
        if self.consumed:
            self.consumed = NOTHING
        self.not_before = 0
        self.number = commit.after.events

    def take_back(self, commit: Commit) -> None:
        """A finishing commit was answered "read first": its events are unwritten again, without the ending."""
        if self.outbox is not None:
            self.outbox.restore(commit)
        if commit.after.deaths < self.process.deaths:
            self.inherited = set()  # what was in flight at those deaths has been recorded, but is not written yet
        self.events = list(commit.events[:-1])
        self.consumed = dict(commit.consumed)
        self.not_before = commit.not_before
        self.number = commit.after.events - 1

    @property
    def rests_for_nothing(self) -> bool:
        """Whether nothing is under way that would bring it on: no step, commit, timer, retry or message."""
        under_way = self.commit is not None or self.queued or self.unheard or self.told is not None
        return not (under_way or self.in_flight or self.retries or self.alarm or self.outbox is not None)

    def drop(self) -> None:
        """Let go: steps are cancelled, the code's memory is evicted; nothing that it does now counts (rule 20)."""
        self.gone = True
        if self.in_flight:
            for attempt_run in list(self.in_flight.values()):
                attempt_run.stop()
            self.in_flight.clear()
        if self.retries:
            for retry in self.retries.values():
                retry.cancel()
            self.retries = NOTHING
        if self.alarm is not None:
            self.alarm[1].cancel()
        self.loop.evict()
