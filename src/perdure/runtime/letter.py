"""A letter: a signal or a call, which stays in the inbox until the code of its process receives it.

It becomes an event in the turn in which the code takes it. What nobody awaits is only marked in the store, by the next
commit; it is read again, some of one name at a time, when somebody waits for that name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from perdure import limits
from perdure.kernel.event import EventType
from perdure.kernel.message import Message, Waiting

if TYPE_CHECKING:
    from perdure.runtime.activation import Activation

Found: TypeAlias = tuple[Sequence[Waiting], Sequence[Message]]
"""Which letters that wait in the store were asked for, and those found."""

NONE: Found = ((), ())


def hear(activation: Activation, message: Message) -> None:
    """Hand a letter to the code that awaits it, or leave it in the inbox; a few are kept in memory too."""
    box = activation.loop.mailbox(message.name)
    number = message.number
    awaited = box.awaited
    if number > activation.seen:  # else it was read again
        activation.seen = number
        if box.more or not (awaited or box.room):
            box.behind = number
            _leave(activation, number)
            return
    if awaited:
        activation.received(number, message.name)
    else:
        _leave(activation, number)
    activation.loop.message(message.type, message.name, message.payload, number, recorded=awaited)


def _leave(activation: Activation, number: int) -> None:
    if number > activation.process.seen:
        if not activation.consumed:
            activation.consumed = {}
        activation.consumed[number] = 0


def to_be_read(activation: Activation) -> bool:
    """Whether somebody waits for letters that are in the store: then nothing goes on before they were read."""
    activation.fetching = bool(wanted(activation))
    return activation.fetching


def wanted(activation: Activation) -> list[Waiting]:
    """The letters that are to be read before the next turn, since somebody waits for them."""
    return [
        Waiting(
            activation.process.id,
            box.name,
            box.cursor,
            activation.process.seen,
            activation.seen,
            min(max(limits.FIRST_RECORDS, 2 * box.asked), limits.BATCH_RECORDS),
        )
        for box in activation.loop.mailboxes.values()
        if box.wanting
    ]


def from_the_first(activation: Activation) -> None:
    """Have the letters in the store read from the first on: an old worker hears later ones and leaves earlier ones."""
    for box in activation.loop.mailboxes.values():
        box.cursor = 0


def fetched(activation: Activation, found: Found) -> None:
    """Letters were read that waited in the store: they come before all that was heard since."""
    asked, letters = found
    activation.fetching = False
    activation.at += 1  # the timer of whoever had no time to wait fires in the turn that hears of it, whatever comes
    for one in asked:
        mine = [letter for letter in letters if letter.name == one.name]
        whole = len(mine) < one.most and sum(len(letter.payload) for letter in mine) < limits.BATCH_BYTES // 2
        last = mine[-1].number if mine and not whole else one.upto
        activation.loop.mailbox(one.name).read(one.most, last)
    activation.inputs[:0] = [(EventType.MESSAGE_RECEIVED, letter, None) for letter in letters]
