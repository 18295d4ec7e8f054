"""A claim: a request for due processes, and its answer; each comes with a lease, a time-limited right to a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from perdure.errors import PerdureError
from perdure.kernel.event import Event
from perdure.kernel.message import Message
from perdure.kernel.process import Process

PlaceT = TypeVar("PlaceT")
QUEUES, KINDS = 1_327_217_885, 889_516_852
"""By these numbers claims that follow each other begin at different queues, and at different kinds, with limits."""
_PRIME = (1 << 31) - 1


def in_turn(places: Sequence[PlaceT], now: int, spread: int) -> list[PlaceT]:
    """Those that share a claim, in the order in which they are asked: at each time another one comes first.

    Each comes first equally often, at whatever intervals claims come: times are multiplied by the golden ratio, or by
    the root of two, as a part of a prime number (``spread``). Only the order changes.
    """
    first = now % _PRIME * spread % _PRIME * len(places) // _PRIME
    return [*places[first:], *places[:first]]


class Claim(Struct, frozen=True, gc=False):
    """A request for due processes of hosted (kind, code version) pairs, at most ``limit`` of them.

    ``alone`` asks for suspects only (processes held at two deaths of their worker); otherwise suspects are left out.
    ``only`` narrows the claim to one process, due or not. The claim is refused as a whole if the incarnation was ended.
    ``among`` narrows it to processes that a hint names as due and free: the store looks for no others. With ``resting``
    it takes of them, due or not, those that are free and as ``cached`` says.
    ``seize`` takes the ``only`` process, if it is running, from its owner, hosted here or not, and nothing if it has
    none: for a command whose writes the owner keeps overtaking. Its ``worker`` is a fresh id, which never enlists and
    never beats.
    ``cached`` are processes that the claimant still has in memory, by id: the token and version of the row when it let
    go of them. It may forget some of them at any time: ask once for each.
    """

    worker: bytes
    hosted: tuple[tuple[str, str], ...]
    limit: int
    lease: int
    alone: bool = False
    only: bytes | None = None
    among: tuple[bytes, ...] = ()
    seize: bool = False
    resting: bool = False
    cached: Mapping[bytes, tuple[int, int]] = {}

    def has(self, claimed: Process) -> bool:
        """Whether the claimant has this process in memory, as its row was until this claim gave it the next token."""
        return self.cached.get(claimed.id) == (claimed.token - 1, claimed.version)


class Claimed(Struct, frozen=True, gc=False):
    """A claimed process: its row after the claim, its run's events, and its unheard or referenced messages.

    One claim reads unheard messages up to so many bytes, of all its processes together. If it had to leave some of this
    one, perhaps all, it is ``cut``: the rest is to be read. Else all that the row counts must be there.
    ``was_owned_by`` is the worker whose lease had lapsed, if any: then the claim is a takeover. ``trouble`` says why
    some of its payloads cannot be opened, or that letters are missing from its inbox: then it must not be replayed.
    ``backlog`` says that letters wait in its inbox that it has heard and not received. ``cached`` says that the
    claimant has it in memory: only its last event and its unheard messages were read.
    """

    process: Process
    events: tuple[Event, ...]
    messages: tuple[Message, ...]
    was_owned_by: bytes | None = None
    trouble: PerdureError | None = None
    backlog: bool = False
    cached: bool = False
    cut: bool = False


def lacks(process: Process, messages: Iterable[Message]) -> bool:
    """Whether these are fewer messages than a process has not heard by its row."""
    return sum(message.number > process.seen for message in messages) < process.inbox - process.seen


class ClaimAnswer(Struct, frozen=True, gc=False):
    """What was claimed; ``next_due_at`` is the earliest due time of the hosted rows left, for the next claim.

    After a claim ``among`` named processes it is None, or now if some of them need a claim of all that is due.

    ``alive`` is false when the incarnation was ended. ``suspects`` says that suspects are due, ``suspects_waiting``
    that some wait for a place in a full queue. ``schema_ahead`` is that of the last beat, or of the store's opening.
    """

    claimed: tuple[Claimed, ...]
    now: int
    next_due_at: int | None = None
    alive: bool = True
    suspects: bool = False
    schema_ahead: int = 0
    suspects_waiting: bool = False
