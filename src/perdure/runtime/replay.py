"""A replay: how a process that was claimed arrives in memory at the place where its history ends."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.kernel.event import SHOWN, Event, EventType
from perdure.kernel.message import Message
from perdure.kernel.patch import has_passed
from perdure.kernel.retry import decode_attempt
from perdure.kernel.run import Opening, opening_of
from perdure.kernel.stored import under_way
from perdure.kernel.undo import undoes
from perdure.runtime import compensation, inbox, turn_commit
from perdure.runtime.instance import Instance, Slot
from perdure.turns import patches


def replay(instance: Instance, events: Sequence[Event], messages: Sequence[Message]) -> None:
    """Deliver the recorded turns at their own times, in the recorded order; raises HistoryMisfit."""
    loop, process = instance.loop, instance.process
    letters = {message.number: message for message in messages}
    opening = opening_of(events)
    if opening.seed:
        loop.seed = process.id + opening.seed.to_bytes(4, "big")
    instance.void = opening.void
    patches.recall(loop, events)
    loop.past = 0 if has_passed(events[opening.letters + 1 :] if opening.letters else events) else None
    loop.fired = frozenset(event.place for event in events if event.type is EventType.TIMER_FIRED)
    instance.begin(process.opened_at or 0, bytes(opening.input))
    asked: set[Slot] = set()
    _stamp(instance, opening, 0, asked)
    kept: dict[Slot, Event] = {}
    turn = 0
    last = 0
    for event in events:
        if event.turn == 0:
            _recall(instance, event, kept, opening, letters)
            continue
        kept.clear()
        if event.turn != turn:
            _run(instance, turn, last, opening, asked)
            turn, instance.at = event.turn, event.at
        _deliver(instance, event, letters)
        last = event.number
    _run(instance, turn, last, opening, asked)
    _arrive(instance)
    instance.turns = turn
    compensation.check(loop, events)
    compensation.note_owed(instance, events)
    loop.asks.clear()
    loop.dropped.clear()
    if loop.renewal is not None and instance.outbox is not None:
        instance.outbox.gather(instance)  # nobody knows which children were told that this run has ended
    open = list(loop.open.values())
    instance.asked = [ask for ask in open if not ask.step.away]
    if len(instance.asked) < len(open) or loop.outgoing or instance.outbox is not None:
        instance.outward().replayed(instance, [ask for ask in open if ask.step.away], asked)
    if kept:
        _answer(instance, kept)
    instance.attempts = {slot: tried for slot, tried in instance.attempts.items() if slot in loop.open}
    if process.progress is not None:
        still = {f"{name}:{place}" for name, place in loop.open}
        instance.reported = {step: told for step, told in under_way(process.progress).items() if step in still}
    if process.deaths:
        instance.inherited = {(ask.name, ask.place) for ask in instance.asked}


def _arrive(instance: Instance) -> None:
    """The history has ended: what comes now is new."""
    loop = instance.loop
    loop.past = loop.fired = None
    if loop.backlog:
        inbox.from_the_first(instance)
    patches.check(loop)
    turn_commit.note_taken(instance)
    turn_commit.note(instance)


def _run(instance: Instance, turn: int, last: int, opening: Opening, asked: set[Slot]) -> None:
    if turn:
        if instance.loop.past is not None:
            instance.loop.past = turn
        instance.loop.run(instance.at)
        _stamp(instance, opening, last, asked)


def _stamp(instance: Instance, opening: Opening, last: int, asked: set[Slot]) -> None:
    """Note in which run the steps just asked for were first asked for (rule 21); ``asked`` gathers the children."""
    loop = instance.loop
    if loop.away:
        asked.update((ask.name, ask.place) for ask in loop.away)
    if opening.origins:
        run = instance.process.run
        stamps = instance.origins = instance.origins or {}
        for ask in (*loop.asks, *loop.away):
            stamps.setdefault((ask.name, ask.place), opening.origin(f"{ask.name}:{ask.place}", last, run))
        for signal in loop.outgoing:
            stamps.setdefault((" tell", signal.place), opening.origin("", last, run))
    loop.asks.clear()
    loop.away.clear()


def _deliver(instance: Instance, event: Event, letters: dict[int, Message]) -> None:
    loop = instance.loop
    if event.message is not None:
        message = letters[event.message]
        if event.type is EventType.MESSAGE_RECEIVED:
            loop.message(message.type, message.name, message.payload, message.number)
        else:
            loop.child_ended(event.place, event.name, event.digest, message.type, message.payload)
    elif event.type is EventType.STEP_COMPLETED:
        loop.step_done(event.place, event.name, event.digest, event.payload)
    elif event.type is EventType.STEP_FAILED:
        loop.step_failed(event.place, event.name, event.digest, event.payload)
    elif event.type is EventType.TIMER_FIRED:
        loop.timer_fired(event.place)


def _answer(instance: Instance, kept: dict[Slot, Event]) -> None:
    """Let results of the run before count for the steps that are open where this run begins: they ran beside."""
    for ask in instance.asked:
        event = kept.get((ask.name, ask.place))
        if event is not None and event.digest in (None, ask.digest):
            instance.inputs.append((EventType.STEP_COMPLETED, ask, event.payload))
    answered = {id(ask) for _, ask, _ in instance.inputs}
    instance.asked = [ask for ask in instance.asked if id(ask) not in answered]


def _recall(
    instance: Instance, event: Event, kept: dict[Slot, Event], opening: Opening, letters: dict[int, Message]
) -> None:
    """Take note of what belongs to no turn."""
    if event.type is EventType.ATTEMPT_FAILED and event.payload is not None:
        instance.tried((event.name, event.place), decode_attempt(event.payload))
    elif event.type in SHOWN:
        turn_commit.recall(instance, event)
    elif event.type is EventType.RESULT_KEPT:
        kept[event.name, event.place] = event
    elif event.type is EventType.RESUMED:
        instance.resumed = event.number
        instance.attempts = {slot: tried for slot, tried in instance.attempts.items() if undoes(slot[1]) is None}
    elif event.type in (EventType.CHILD_STARTED, EventType.SIGNAL_SENT):
        instance.outward().recall(event, kept=0 < event.number - 1 <= opening.kept)
    elif event.type is EventType.ANSWER_IGNORED and event.message is not None and instance.outbox is not None:
        instance.outbox.ignored(letters[event.message])
