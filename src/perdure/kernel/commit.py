"""A commit: all that one transaction writes for one process, the only way state changes; and a turn's outcome."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from operator import attrgetter

from msgspec import Struct

from perdure.kernel.event import Event
from perdure.kernel.message import Message
from perdure.kernel.process import Process, Status


class Removal(StrEnum):
    """What a commit removes: the ``PROCESS`` with all that belongs to it, or the ``KEY`` of one that has ended."""

    PROCESS = "process"
    KEY = "key"


class Commit(Struct, frozen=True, gc=False):
    """What one transaction writes for one process, if its fence still fits the locked row.

    The fence is ``token`` and ``version``: the row must have both. ``after`` is the row as it will be, except for
    ``inbox`` (which belongs to senders), ``changed_at`` (the store's now) and:

    * ``lease`` > 0: the row stays owned by ``after.owner``, and its ``due_at`` becomes now + lease (microseconds);
    * ``lease`` = 0: the row is free; ``due_at`` is ``after.due_at``, or now if there is an unheard message.

    ``after.version`` is ``version`` + 1. ``after.token`` is ``token``, or a higher one for a forcing command.
    ``events`` continue the numbering of ``after.run``. ``consumed`` pairs message numbers with the number of the
    event that records them, or with 0: such a letter stays in the inbox, or is put back, until the code receives it.
    ``offered`` makes messages from that number on unconsumed again (for a new run), and the letters that the run
    before it has received.
    ``not_before`` is the latest due time of the timers fired: before it, the store refuses the commit as ``EARLY``.
    ``starts`` are children without keys, ``sends`` messages to others: written with an applied commit or not at all,
    and recognised by their ids if the commit is sent again. If another transaction has locked the row of a message's
    target, the verdict is ``BUSY``.
    ``attributes_set`` says that the attributes have changed: else their column stays as it is, at no cost.
    ``progress_kept`` says that the row shows the same progress as before: its column stays as it is, at no cost.
    ``published`` says that the events hold published values or answers: the store notifies those who wait for them.
    ``removes`` says what is deleted in the same transaction, once the commit is written. A process that is not there
    any more was removed before: then the verdict is ``APPLIED``.
    ``brings`` is a letter to the process itself that was never sent: it is put into the inbox under its ``number``,
    which is ``after.seen``, consumed by the event that ``consumed`` names. If the inbox does not end just before that
    number, or has its key, the verdict is ``READ_FIRST``. A commit that offers or removes something brings none.
    """

    token: int
    version: int
    after: Process
    events: tuple[Event, ...] = ()
    consumed: tuple[tuple[int, int], ...] = ()
    lease: int = 0
    not_before: int = 0
    offered: int | None = None
    starts: tuple[Start, ...] = ()
    sends: tuple[Message, ...] = ()
    attributes_set: bool = False
    progress_kept: bool = False
    published: bool = False
    removes: Removal | None = None
    brings: Message | None = None


removes: Callable[[Commit], Removal | None] = attrgetter("removes")
"""What a commit removes, as a function: to ask a whole batch costs next to nothing."""


class Verdict(StrEnum):
    """What became of a commit.

    ``REFUSED``: the fence did not fit, a late answer. ``BUSY``: another transaction had locked the row, try again.
    ``READ_FIRST``: the process would end with unheard messages, or what the commit brings is not the next message.
    ``EARLY``: a timer is not due by the store's clock.
    """

    APPLIED = "applied"
    REFUSED = "refused"
    BUSY = "busy"
    READ_FIRST = "read first"
    EARLY = "early"


APPLIED = Verdict.APPLIED
"""The most frequent verdict, as a constant: in CPython 3.11 every look-up in an enum's class is a call."""


class CommitAnswer(Struct, frozen=True, gc=False):
    """The answer to one commit: ``inbox`` is the row's count of messages, ``now`` the store's time."""

    verdict: Verdict
    inbox: int = 0
    now: int = 0


class Start(Struct, frozen=True, gc=False):
    """A new process to be stored, with the events of its first turn if the starter has run that already.

    ``process.id`` is made by the caller; ``process.owner`` set means started as owned (``lease`` microseconds).
    ``process.created_at`` and ``opened_at`` are the starter's turn time, or 0 and None for the store's now.
    ``messages`` go to the process itself: they are written with its insert, or not at all if it exists already. The
    start of a child has none. Those that the events have received are consumed: a fork comes with both.
    """

    process: Process
    events: tuple[Event, ...] = ()
    lease: int = 0
    messages: tuple[Message, ...] = ()


class StartVerdict(StrEnum):
    """``CONFLICT``: the key is taken by another input. ``REFUSED``: the starting incarnation was ended.

    ``BUSY``: nothing was stored yet; the runtime tries again by itself. ``LIMITED``: its kind has limits, so no first
    turn of it may be run before it has a place; nothing was stored.
    """

    CREATED = "created"
    EXISTS = "already exists"
    CONFLICT = "conflict"
    REFUSED = "refused"
    BUSY = "busy"
    LIMITED = "limited"


CREATED = StartVerdict.CREATED
"""The most frequent verdict, a constant for the same reason."""


class StartAnswer(Struct, frozen=True, gc=False):
    """The answer to one start: ``id`` is that of the process that has the key, new or old.

    ``again``: a process of this very id was there already, by an earlier sending of this start or by somebody else's.
    """

    verdict: StartVerdict
    id: bytes
    inbox: int = 0
    now: int = 0
    again: bool = False


class Outcome(Struct, frozen=True, gc=False):
    """What a turn left behind.

    ``busy``: steps are in flight, or the next event is so near that the owner keeps the row. ``wake_at``: the
    earliest timer or retry (microseconds), if any. ``awaiting``: what the process waits for, for people.
    ``removes``: what goes with the end of the process.
    """

    status: Status = Status.RUNNING
    busy: bool = False
    wake_at: int | None = None
    awaiting: str | None = None
    state: bytes | None = None
    result: bytes | None = None
    error: bytes | None = None
    removes: Removal | None = None


STILL_BUSY = Outcome(busy=True)
