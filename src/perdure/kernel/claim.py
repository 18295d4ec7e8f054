"""A lease: owner, token and due time, a time-limited right to work on a row."""

from __future__ import annotations

from msgspec import Struct

from perdure.errors import PerdureError
from perdure.kernel.event import Event
from perdure.kernel.message import Message
from perdure.kernel.process import Process


class Claim(Struct, frozen=True, gc=False):
    """A request for due processes of hosted (kind, code version) pairs, at most ``limit`` of them.

    ``alone`` asks for suspects only (processes that died twice with their worker), otherwise they are left out.
    ``only`` narrows the claim to one process, due or not. Refused as a whole if the incarnation was ended.
    ``among`` narrows it to some of which somebody has said that they are due and free: nothing else is looked for.
    ``seize`` takes that one, while it runs, from whoever has it, hosted or not: a command does so that must not be
    outrun. Its ``worker`` is an id of its own, which nobody enlists and nobody beats for.
    """

    worker: bytes
    hosted: tuple[tuple[str, str], ...]
    limit: int
    lease: int
    alone: bool = False
    only: bytes | None = None
    among: tuple[bytes, ...] = ()
    seize: bool = False


class Claimed(Struct, frozen=True, gc=False):
    """A process in hand: the row after the claim, its run's events, and its unheard or referenced messages.

    Of what is unheard only as much is read as one claim reads: the row's ``inbox`` says whether there is more.
    ``was_owned_by`` is the worker whose lease had lapsed, if any: the claim is a takeover. ``trouble`` is why some of
    its payloads cannot be opened: it must not be replayed. ``backlog`` says that letters wait in its inbox which it has
    heard and not received.
    """

    process: Process
    events: tuple[Event, ...]
    messages: tuple[Message, ...]
    was_owned_by: bytes | None = None
    trouble: PerdureError | None = None
    backlog: bool = False


class ClaimAnswer(Struct, frozen=True, gc=False):
    """What was claimed; ``next_due_at`` is the earliest due time among hosted rows left, for the next look.

    Of a claim ``among`` some it is None, or now if some of them may only be taken by looking for all that is due.

    ``alive`` is false when the incarnation was ended. ``suspects`` says that suspects are due, ``suspects_waiting``
    that some wait for a place in a queue that is full. ``schema_ahead`` is that of the last beat, or of the opening.
    """

    claimed: tuple[Claimed, ...]
    now: int
    next_due_at: int | None = None
    alive: bool = True
    suspects: bool = False
    schema_ahead: int = 0
    suspects_waiting: bool = False
