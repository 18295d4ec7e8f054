"""The inbox of one process in memory: which messages it has heard, received and left, and which it still has to read.

A letter, which is a signal or a call, stays in the inbox until the code of its process receives it; it becomes an event
in the turn in which the code takes it. A letter that the code does not await is only marked in the store, by the next
commit; it is read again, some of one name at a time, when the code waits for that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from perdure import limits
from perdure.clock import microseconds
from perdure.kernel import integrity
from perdure.kernel.command import sooner
from perdure.kernel.message import LettersWanted, Message, MessageType, OnBrought
from perdure.runtime.open_steps import NOTHING

if TYPE_CHECKING:
    from perdure.kernel.process import Process
    from perdure.turns.mailbox import Mailbox

FoundLetters: TypeAlias = tuple[Sequence[LettersWanted], Sequence[Message]]
"""Which letters that wait in the store were asked for, and those found."""

NONE: FoundLetters = ((), ())


class Brought(NamedTuple):
    """A letter that a process has heard and that is not stored; ``written`` is told once it is, or must be sent."""

    letter: Message
    written: OnBrought


class Inbox:
    """``heard`` is the highest number of a message that was read, ``seen`` the highest that a turn has heard.

    ``unheard`` messages, by a commit's answer, must be read before the process goes on. ``consumed`` says of each
    message which event has received it; 0 marks a letter that the code has not received. ``fetching``: the code waits
    for letters that must be read from the store. Orders up to ``void`` were meant for an earlier run, and ``until`` is
    the earliest time by which a person wants the process to have ended. ``patience`` is the store's time until which
    the process stays in memory after a message, ``called_at`` when a machine has received its last letter.
    ``brought`` has been heard and is not stored: the next commit brings it.
    """

    __slots__ = (
        "brought", "called_at", "consumed", "fetching", "heard", "patience", "seen", "unheard", "until", "void",
    )  # fmt: skip

    def __init__(self, seen: int) -> None:
        self.heard = seen
        self.seen = seen
        self.unheard = 0
        self.consumed: dict[int, int] = NOTHING
        self.fetching = False
        self.void = 0
        self.until: int | None = None
        self.patience = 0
        self.called_at = 0
        self.brought: Brought | None = None

    def await_messages(self, count: int = 0) -> None:
        """So many messages are known to be in the inbox (0: some): they are read before the process goes on."""
        self.unheard = count or self.unheard or -1

    def hear(self, process: Process, messages: Iterable[Message]) -> Iterator[Message]:
        """Those of the messages that are new, each once, in the order of their numbers.

        Raises DamagedRecord if one is missing in front of a later one.
        """
        for message in messages:
            if message.number > self.heard:  # a process that is asked for twice is read twice
                if message.number != self.heard + 1:
                    if message.type is MessageType.TERMINATE:  # it is read before the messages in front of it
                        continue
                    raise integrity.gap(process, self.heard, message)
                self.heard = message.number
                yield message

    def bring(self, message: Message, written: OnBrought) -> Message:
        """A letter is heard before it is stored; return it with its number. The store will say when it came."""
        self.brought = Brought(replace(message, number=self.heard + 1), written)
        return self.brought.letter

    def brought_in(self) -> Brought:
        """The commit that was to bring a letter was answered, or there will be none."""
        brought, self.brought = self.brought, None
        assert brought is not None
        return brought

    def read(self) -> int:
        """The messages for which the process waited have been read; return how many were expected."""
        counted, self.unheard = self.unheard, 0
        return counted

    def consume(self, number: int, event: int) -> None:
        """A turn has heard a message, or the code has received a letter; the event of that number records it."""
        if not self.consumed:
            self.consumed = {}
        self.consumed[number] = event
        if number > self.seen:
            self.seen = number

    def received(self, number: int, event: int, at: int) -> None:
        """The code has received a letter at that time: a process with a long history stays in memory for a while."""
        self.consume(number, event)
        if event >= limits.LONG_HISTORY_EVENTS:
            self.patience = at + microseconds(limits.LONG_HISTORY_HOLD_SECONDS)

    def called(self, at: int) -> None:
        """A machine has received a letter at that time: if they come often, it stays in memory for the next one.

        They come often if there were several within that time: else each would cost one commit more, to let it go.
        """
        hold = microseconds(limits.MACHINE_HOLD_SECONDS)
        if at - self.called_at <= hold // 2:
            self.patience = at + hold
        self.called_at = at

    def see(self, number: int) -> bool:
        """Note that a turn hears a letter; false if an earlier turn has heard it, and it was only read again."""
        if number <= self.seen:
            return False
        self.seen = number
        return True

    def leave(self, number: int, process: Process) -> None:
        """A letter stays in the store: the next commit marks it, unless an earlier one has."""
        if number > process.seen:
            if not self.consumed:
                self.consumed = {}
            self.consumed[number] = 0

    def bound(self, until: int | None) -> None:
        """A person wants the process to have ended by then."""
        if until is not None:
            self.until = sooner(self.until, until)

    def new_run(self, void: int) -> None:
        """Orders up to that number were meant for earlier runs."""
        self.void = void

    def committed(self) -> None:
        """What was consumed has gone into a commit."""
        self.consumed = NOTHING

    def take_back(self, consumed: Iterable[tuple[int, int]]) -> None:
        """That commit was not applied."""
        self.consumed = dict(consumed)

    def wanted(self, process: Process, boxes: Iterable[Mailbox]) -> list[LettersWanted]:
        """The letters to read before the next turn, since the code waits for them."""
        return [
            LettersWanted(
                process.id,
                box.name,
                box.cursor,
                process.seen,
                self.seen,
                min(max(limits.FIRST_RECORDS, 2 * box.asked), limits.BATCH_RECORDS),
            )
            for box in boxes
            if box.wanting
        ]

    def fetch(self, wanted: Sequence[LettersWanted]) -> bool:
        """Note whether letters must be read from the store: the process goes on only after that."""
        self.fetching = bool(wanted)
        return self.fetching
