"""A turn: what has come in is recorded and delivered, the code runs until it waits, and its outputs are gathered."""

from __future__ import annotations

from functools import partial
from typing import Any

from perdure import limits
from perdure.kernel import message as messages
from perdure.kernel.child import ANSWERS, ORDERS
from perdure.kernel.command import until_of
from perdure.kernel.context import of_attributes
from perdure.kernel.event import EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import LettersWanted, Message, MessageType, call_text
from perdure.kernel.payload import digest as digest_of
from perdure.runtime import compensation, kept_arguments, published
from perdure.runtime.inbox import FoundLetters
from perdure.runtime.instance import Instance
from perdure.turns.asking import Outputs
from perdure.turns.loop import Ask
from perdure.turns.renewal import at_its_time
from perdure.turns.saga import UndoAsk, unheard

_COMPLETED, _MESSAGE = EventType.STEP_COMPLETED, EventType.MESSAGE_RECEIVED


def begin(instance: Instance, input: bytes = b"", *, ours: bool = False, not_before: int = 0) -> None:
    """Run the first turn at the opening time of the run; ``input`` is that of a run which the process itself opened.

    ``ours`` says that this program has just written the input. The code begins ``not_before`` that time, which is later
    if the run is another attempt.
    """
    workflow, loop = instance.workflow, instance.loop
    args, kwargs = workflow.shape.decode(input or instance.process.input, ours=ours)
    if instance.process.attributes is not None:
        loop.context = of_attributes(instance.process.attributes)
    if not_before > instance.at:
        loop.begin(partial(at_its_time, loop, not_before, workflow.function), args, kwargs, workflow.shape)
    elif workflow.machine is None:
        loop.begin(workflow.function, args, kwargs, workflow.shape)
    else:
        loop.machine = workflow.machine.life(instance.process)
        loop.begin(loop.machine.run, args, kwargs, workflow.shape)
    loop.run(instance.at)


def run(instance: Instance, now: int) -> None:
    """Run one turn: the timers that are due, then what has come in, as events; then the code until it waits."""
    loop = instance.loop
    if now < instance.at:
        now = instance.at
    before = instance.number
    due = loop.due_timers(now) if loop.timers.open else ()
    inputs = instance.begin_turn(now, due)
    if due:
        for _, place in due:
            loop.timer_fired(place)
    for type, subject, payload, ours in inputs:
        if type is _MESSAGE:
            _receive(instance, subject)
        elif subject.slot in loop.open:
            _answer(instance, type, subject, payload, ours)
    if instance.number == before:
        instance.void_turn()
        return
    loop.run(now)
    if loop.received:
        for number, name in loop.take_received():
            _record_letter(instance, number, name)


def gather(instance: Instance) -> None:
    """Collect what the code has asked for in a turn, and let go of what it no longer wants."""
    loop = instance.loop
    asks, outputs = loop.take_outputs()
    if loop.notes:
        published.note_patches(instance)
        published.note_timers(instance)
        published.note_looks(instance)
        published.note(instance)
        compensation.note_owed(instance)
        asks = [ask for ask in asks if not unheard(loop, ask)]
        if loop.keeps:
            kept_arguments.note(instance, asks if outputs is None else [*asks, *outputs.away])
    if asks:
        instance.steps.ask(asks)
    if outputs is not None or (instance.outbox is not None and loop.finished):
        _gather_others(instance, outputs or Outputs())


def _gather_others(instance: Instance, outputs: Outputs) -> None:
    finished = instance.outbox is not None and instance.loop.finished
    if outputs.away or outputs.stops or outputs.outgoing or finished:
        instance.outward().gather(instance, outputs)
    if outputs.dropped:
        for ask in outputs.dropped:
            if ask.step.away:
                instance.outward().dropped(ask)
        instance.steps.take_back(outputs.dropped, instance.loop.open)


# -- what comes in -------------------------------------------------------------------------------------------------


def _answer(instance: Instance, type: EventType, ask: Ask[Any], payload: bytes | None, ours: bool) -> None:
    instance.record(type, ask.place, ask.name, payload, ask.digest)
    if instance.steps.remembers:
        instance.steps.forget(ask)
    if type is _COMPLETED:
        instance.loop.step_done(ask.place, ask.name, ask.digest, payload, ours)
    else:
        instance.loop.step_failed(ask.place, ask.name, ask.digest, payload)


def _receive(instance: Instance, message: Message) -> None:
    if message.type in ANSWERS:
        ask = None if message.sender is None else _awaited(instance, message)
        _deliver_answer(instance, _of_a_child(instance, message) if ask is None else ask, message)
    elif message.type not in ORDERS:
        machine = instance.loop.machine
        if machine is None or machine.knows(message.name) or not _in_vain(instance, message):
            _receive_letter(instance, message)
    elif message.number <= instance.inbox.void:  # it was meant for an earlier run
        _deliver_answer(instance, None, message)
    else:
        instance.inbox.bound(until_of(message))
        _record_letter(instance, message.number, message.name)
        instance.loop.message(message.type, message.name, message.payload, message.number)


def _awaited(instance: Instance, message: Message) -> Ask[Any] | None:
    """The transactional step whose result this message is, if the code still waits for it.

    Raises HistoryMisfit if the code has changed meanwhile, and waits for that step with other arguments.
    """
    origin = messages.origin_of(message)
    ask = None if origin is None else instance.loop.open.get((message.name, origin.place))
    if origin is None or ask is None or messages.result_id(instance.idempotency_key(ask)) != message.id:
        return None
    if origin.digest != ask.digest.hex():
        instance.loop.step_done(ask.place, ask.name, bytes.fromhex(origin.digest), message.payload)
    return ask


def _of_a_child(instance: Instance, message: Message) -> Ask[Any] | None:
    """The child or queued step that a message answers, if the code still waits for it.

    The failure of an undo is not delivered to the code: the undo has given up.
    """
    ask = instance.outward().take(message, instance.loop, instance.at)
    if isinstance(ask, UndoAsk) and message.type is not MessageType.RESULT:
        compensation.gave_up(instance, ask, Failure.decode(message.payload), instance.at)
        return None
    return ask


def _deliver_answer(instance: Instance, ask: Ask[Any] | None, message: Message) -> None:
    """Deliver an answer, whose payload stays in the inbox; or note that the code does not wait for it."""
    if ask is None:
        instance.note(EventType.ANSWER_IGNORED, instance.at, None, name=message.name, message=message.number)
    else:
        type = EventType.STEP_COMPLETED if message.type is MessageType.RESULT else EventType.STEP_FAILED
        instance.record(type, ask.place, ask.name, None, ask.digest, message.number)
        if instance.steps.remembers:
            instance.steps.forget(ask)
        instance.loop.child_ended(ask.place, ask.name, ask.digest, message.type, message.payload)
    instance.inbox.consume(message.number, instance.number)


# -- letters -------------------------------------------------------------------------------------------------------


def _receive_letter(instance: Instance, message: Message) -> None:
    """Hand a letter to the code that awaits it, or leave it in the inbox; a few are kept in memory too."""
    box = instance.loop.mailbox(message.name)
    number = message.number
    awaited = box.awaited
    if instance.inbox.see(number) and (box.more or not (awaited or box.room)):
        box.leave(number)
        instance.inbox.leave(number, instance.process)
        return
    if awaited:
        _record_letter(instance, number, message.name)
    else:
        instance.inbox.leave(number, instance.process)
    if message.sender is not None:
        instance.loop.heard_from(number, message.sender)
    instance.loop.message(message.type, message.name, message.payload, number, recorded=awaited)


def _record_letter(instance: Instance, number: int, name: str) -> None:
    """Record that the code has received a letter, whose payload stays in the inbox."""
    instance.record(_MESSAGE, "", name, None, None, number)
    instance.inbox.received(number, instance.number, instance.at)
    if instance.loop.machine is not None:
        instance.inbox.called(instance.at)


def _in_vain(instance: Instance, message: Message) -> bool:
    """Refuse a call of a method that the machine does not have, unless the method under way waits for that name.

    A signal of such a name stays in the inbox: the class of a newer worker may have the method.
    """
    box = instance.loop.mailboxes.get(message.name)
    if box is not None and box.awaited:
        return False
    text = instance.loop.machine.without(message.name)
    if message.type is not MessageType.CALL:
        instance.loop.machine.warn(message.name, text)
        return False
    refusal, answer = Failure(type="NoSuchMethod", message=text), call_text(message.name, message.number)
    digest = digest_of(message.payload)
    instance.note(
        EventType.CALL_REFUSED, instance.at, refusal.encode(), name=answer, digest=digest, message=message.number
    )
    instance.inbox.consume(message.number, instance.number)
    return True


def wanted(instance: Instance) -> list[LettersWanted]:
    """The letters to read before the next turn, since the code waits for them."""
    return instance.inbox.wanted(instance.process, instance.loop.mailboxes.values())


def must_fetch(instance: Instance) -> bool:
    """Whether the code waits for letters that are in the store: the process goes on only after they were read."""
    return instance.inbox.fetch(wanted(instance))


def fetched(instance: Instance, found: FoundLetters) -> None:
    """Letters that waited in the store were read: the next turn hears them first."""
    asked, letters = found
    for one in asked:
        mine = [letter for letter in letters if letter.name == one.name]
        whole = len(mine) < one.most and sum(len(letter.payload) for letter in mine) < limits.BATCH_BYTES // 2
        last = mine[-1].number if mine and not whole else one.upto
        instance.loop.mailbox(one.name).read(one.most, last)
    instance.fetched(letters)
