"""A replay: how a process that was claimed arrives in memory at the place where its history ends."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

from perdure import limits
from perdure.kernel.checkpoint import last_turn, turn_before, unfinished
from perdure.kernel.event import SHOWN, Event, EventType
from perdure.kernel.message import Message
from perdure.kernel.patch import has_passed
from perdure.kernel.retry import decode_attempt
from perdure.kernel.run import opening_of
from perdure.kernel.stored import under_way
from perdure.kernel.undo import undoes
from perdure.kernel.workflow_retry import last_attempt
from perdure.runtime import compensation, kept_arguments, published, turn
from perdure.runtime.instance import Instance, next_at
from perdure.runtime.open_steps import Slot
from perdure.turns import patches
from perdure.turns.asking import EVERYWHERE, OutgoingSignal
from perdure.turns.loop import Ask
from perdure.turns.publication import publications_of
from perdure.turns.saga import unheard

_TIMERS = frozenset({EventType.TIMER_FIRED, EventType.LOOK_CUT_SHORT})
"""The events that name the place of a timer which the code had opened."""


class Replay:
    """One replay. ``asked`` are the children that the code has asked for, ``outgoing`` the signals that it has sent.

    ``unwanted`` are queued steps that the code has asked for and no longer wants.
    ``kept`` are the results that the run before has left for steps that are open when this run begins. ``begun`` are
    steps that run at most once and have begun. ``turns`` and ``latest`` are the number and the time of a machine's last
    turn, which need not be replayed. ``loss`` is the last loss of a worker since a person has let the process go on, if
    there was one, ``since`` the steps that were asked for after it.
    """

    def __init__(self, instance: Instance, events: Sequence[Event], messages: Sequence[Message]) -> None:
        self.instance = instance
        self.turns = last_turn(instance.process, events)
        self.latest = next((event.at for event in reversed(events) if event.turn), 0) if events else 0
        self.events = unfinished(instance.process, events)
        self.opening = opening_of(events)
        self.letters = {message.number: message for message in messages} if messages else {}
        self.asked: set[Slot] = set()
        self.outgoing: list[OutgoingSignal] = []
        self.unwanted: list[Ask[Any]] = []
        self.kept: dict[Slot, Event] = {}
        self.begun: set[Slot] = set()
        self.loss: Event | None = None
        self.since: set[Slot] = set()

    def lose(self, loss: Event) -> None:
        """A worker was lost, with all that was under way."""
        self.loss = loss
        self.since = set()

    def interrupted(self, ask: Ask[Any]) -> int | None:
        """When the worker was lost at which an open step was under way; None if it was not asked for, or waited."""
        if self.loss is None or ask.slot in self.since:
            return None
        tried = self.instance.steps.attempts.get(ask.slot)
        return self.loss.at if tried is None or tried.retry_at <= self.loss.at else None

    def run(self) -> Iterator[None]:
        """Deliver the recorded turns at their own times, in the recorded order; then what comes is new.

        A long history is replayed in portions, between which this yields. Nothing else may reach the process until the
        end. Raises HistoryMisfit.
        """
        self._begin()
        number = pending = last = 0
        breath = limits.REPLAY_EVENTS
        for event in self.events:
            if event.turn == 0:
                if event.type is EventType.ATTRIBUTES_EDITED:
                    self._turn(pending, last)  # what its code has set was set before
                    pending = 0
                self._recall(event)
                continue
            self.kept.clear()
            if event.turn != pending:
                self._turn(pending, last)
                if event.number > breath:
                    breath = event.number + limits.REPLAY_EVENTS
                    yield
                number = pending = event.turn
                self.instance.reach(event.at)
            self._deliver(event)
            last = event.number
        self._turn(pending, last)
        self._arrive()
        self.instance.reach(next_at(self.instance, max(self.instance.at, self.latest)), max(number, self.turns))
        if self.instance.loop.machine is not None:
            self.instance.loop.machine.replayed(self.instance.loop.runs, self.instance.turns)
        self._go_on()

    def _begin(self) -> None:
        instance, loop, opening, events = self.instance, self.instance.loop, self.opening, self.events
        instance.inbox.new_run(opening.void)
        instance.reach(instance.process.opened_at or 0)
        patches.recall(loop, events)
        passed = has_passed(events[opening.letters + 1 :] if opening.letters else events)
        if events or instance.process.version:  # else no turn of it has ever been written: this is its first one
            loop.begin_replay(self._fired(), turn_before(instance.process) if passed else None)
        if opening.seeds:
            loop.begin_as(opening.began_as())
        loop.reseed(opening.seed_after(0, loop.process_id))
        failed = last_attempt(events)
        turn.begin(instance, bytes(opening.input), not_before=0 if failed is None else failed.retry_at)
        self._stamp(0)

    def _fired(self) -> Container[str]:
        """Where the code has looked for letters, or has waited for a timer."""
        if self.instance.process.run > 1 and not any(event.turn for event in self.events):
            return EVERYWHERE
        return frozenset(event.place for event in self.events if event.type in _TIMERS)

    def _turn(self, number: int, last: int) -> None:
        """Run the recorded turn of that number, if there is one; ``last`` is the number of its last event."""
        if number:
            if self.opening.seeds:
                self.instance.loop.reseed(self.opening.seed_after(last, self.instance.process.id))
            self.instance.loop.replay_turn(number, self.instance.at)
            self._stamp(last)

    def _stamp(self, last: int) -> None:
        """Note in which run the steps just asked for were first asked for (rule 21)."""
        asks, outputs = self.instance.loop.take_outputs()
        if outputs is not None:
            asks += outputs.away
            self.asked.update(ask.slot for ask in outputs.away)
            self.outgoing += outputs.outgoing
            self.unwanted += (ask for ask in outputs.dropped if ask.step.away)
        if self.loss is not None and last > self.loss.number:
            self.since.update(ask.slot for ask in asks)
        opening = self.opening
        if opening.origins:
            run = self.instance.process.run
            stamps = {ask.slot: opening.origin(f"{ask.name}:{ask.place}", last, run) for ask in asks}
            if outputs is not None:
                stamps |= {(" tell", signal.place): opening.origin("", last, run) for signal in outputs.outgoing}
            self.instance.steps.stamp(stamps)

    def _deliver(self, event: Event) -> None:
        loop = self.instance.loop
        if event.message is not None:
            message = self.letters[event.message]
            if event.type is EventType.MESSAGE_RECEIVED:
                if message.sender is not None:
                    loop.heard_from(message.number, message.sender)
                loop.message(message.type, message.name, message.payload, message.number)
            else:
                loop.child_ended(event.place, event.name, event.digest, message.type, message.payload)
        elif event.type is EventType.STEP_COMPLETED:
            loop.step_done(event.place, event.name, event.digest, event.payload)
        elif event.type is EventType.STEP_FAILED:
            loop.step_failed(event.place, event.name, event.digest, event.payload)
        elif event.type is EventType.TIMER_FIRED:
            loop.timer_fired(event.place)

    def _recall(self, event: Event) -> None:
        """Note an event that belongs to no turn."""
        instance = self.instance
        if event.type is EventType.ATTEMPT_FAILED and event.payload is not None:
            instance.steps.tried((event.name, event.place), decode_attempt(event.payload))
        elif event.type is EventType.ATTEMPT_BEGUN:
            self.begun.add((event.name, event.place))
        elif event.type is EventType.REVIVED:
            self.lose(event)
        elif event.type in SHOWN:
            publications_of(instance.loop).recall(event.name, event.place)
        elif event.type is EventType.RESULT_KEPT:
            self.kept[event.name, event.place] = event
        elif event.type is EventType.RESUMED:
            instance.resume(event.number)
            self.loss = None
            self.begun = {slot for slot in self.begun if undoes(slot[1]) is None}
        elif event.type is EventType.REPAIRED:
            self.loss = None
        elif event.type in (EventType.CHILD_STARTED, EventType.SIGNAL_SENT):
            instance.outward().recall(event, kept=0 < event.number - 1 <= self.opening.kept)
        elif event.type is EventType.ATTRIBUTES_EDITED and not self._came_before_the_code(event):
            published.edited(instance.loop, event)
        elif event.type is EventType.ANSWER_IGNORED and event.message is not None and instance.outbox is not None:
            instance.outbox.ignored(self.letters[event.message])

    def _came_before_the_code(self, edit: Event) -> bool:
        """Whether attributes were edited before the process began: what its first turn sets counts after that."""
        if edit.at >= (self.instance.process.opened_at or 0):
            return False
        return not has_passed([event for event in self.events if event.number < edit.number])

    def _arrive(self) -> None:
        """The history has ended: what comes now is new."""
        instance, loop = self.instance, self.instance.loop
        if self.opening.seeds:
            loop.reseed(self.opening.seed_of(instance.process.id))
        loop.end_replay()
        patches.check(loop)
        published.note_patches(instance)
        if loop.looks:
            published.note_looks(instance)
        published.note(instance)
        compensation.check(loop, self.events)
        compensation.note_owed(instance, self.events)
        if loop.keeps:
            kept_arguments.note(instance, loop.open.values(), self.events)

    def _go_on(self) -> None:
        """Ask again for all that is still open, but for what the history says is under way or has been answered."""
        instance, loop, process = self.instance, self.instance.loop, self.instance.process
        open = list(loop.open.values())
        here = [ask for ask in open if not ask.step.away]
        if len(here) < len(open) or self.outgoing or instance.outbox is not None:
            elsewhere = [ask for ask in open if ask.step.away]
            instance.outward().replayed(instance, elsewhere, self.asked, self.outgoing, self.unwanted)
        still = {f"{name}:{place}" for name, place in loop.open}
        told = {} if process.progress is None else under_way(process.progress)
        reported = {step: progress for step, progress in told.items() if step in still}
        asked = [ask for ask in here if not (unheard(loop, ask) or self._answered(ask))]
        instance.steps.replayed(asked, loop.open, reported, self.begun)
        if process.deaths:
            instance.steps.inherit()

    def _answered(self, ask: Ask[Any]) -> bool:
        """Whether an open step is not asked for again: it has a kept result, or has broken its process."""
        tried = self.instance.steps.attempts.get(ask.slot)
        if tried is not None and tried.breaks:
            return True
        event = self.kept.get(ask.slot)
        if event is None or event.digest not in (None, ask.digest):
            return False
        self.instance.deliver(EventType.STEP_COMPLETED, ask, event.payload)
        return True
