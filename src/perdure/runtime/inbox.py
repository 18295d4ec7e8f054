"""The inbox reader: fetches messages that processes held here have not heard, many processes at a time.

A letter, which is a signal or a call, stays in the inbox until the code of its process receives it; it becomes an event
in the turn in which the code takes it. What nobody awaits is only marked in the store, by the next commit; it is read
again, some of one name at a time, when the code waits for that name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from perdure import limits
from perdure.kernel.event import EventType
from perdure.kernel.message import LettersWanted, Message, MessageType
from perdure.loop import Loop
from perdure.runtime.turn_commit import rests
from perdure.store.base import Store

if TYPE_CHECKING:
    from perdure.runtime.instance import Instance
    from perdure.runtime.scheduler import Scheduler


TOLD_SECONDS = 0.25
"""A process whose last commit was answered this recently has been told of its messages by that answer.

Not so one that waits for children: their answers come at any time.
"""
OPENED_BYTES = 256
"""By so much a payload may be larger in the store than it is here."""
GAP_SECONDS = 0.001
"""Looks on a hint follow each other no faster than this, nor faster than they take."""


class InboxReader:
    """Reads for those whose commit told of unheard messages; on a hint, and once a second, for all in hand.

    ``quiet`` is told of those that something was to have come for, and nothing had.
    """

    def __init__(self, store: Store, scheduler: Scheduler) -> None:
        self.store = store
        self.scheduler = scheduler
        self.loop = Loop("signals", self._tick, scheduler.committer.outage)
        self.quiet: Callable[[Sequence[bytes]], None] = lambda processes: None
        self._wanted: list[Instance] = []
        self._hinted = False
        self._named: set[bytes] = set()

    def want(self, instance: Instance) -> None:
        """The process is known to have unheard messages: it waits for them before it goes on."""
        self._wanted.append(instance)
        self.loop.wake()

    def hint(self) -> None:
        """Something was sent to somebody: look whether it was for a process in hand."""
        self._hinted = True
        self.loop.wake()

    def look(self, process: bytes) -> None:
        """Something was sent to this process: if it is in hand, read for it now."""
        self._named.add(process)
        self.loop.wake()

    async def _tick(self) -> float:
        wanted, self._wanted = self._wanted, []
        named, self._named = self._named, set()
        hinted, self._hinted = self._hinted, False
        known = set(map(id, wanted))
        told = self.scheduler.time.monotonic() + self.scheduler.lease_seconds - TOLD_SECONDS
        others = [a for a in self.scheduler.instances.values() if id(a) not in known]
        heard = [
            a
            for a in others
            if a.commit is None and (a.lease_end < told or a.process.id in named or (hinted and rests(a)))
        ]
        began = self.scheduler.time.monotonic()
        try:
            news = await self._read([*wanted, *heard], known)
        except BaseException:
            self._wanted = wanted + self._wanted
            self._named |= named
            raise
        if quiet := [a.process.id for a in heard if a.process.id in named and a.process.id not in news]:
            self.quiet(quiet)
        if self._wanted or self._named:
            return 0.0
        if self._hinted:  # there may be many hints: looking must not become all that is done
            await asyncio.sleep(max(GAP_SECONDS, self.scheduler.time.monotonic() - began))
            return 0.0
        # The hint may have been for one of those left out, and newer than its last commit: look a moment later.
        return TOLD_SECONDS if (hinted or named) and len(heard) < len(others) else limits.POLL_SECONDS

    async def _read(self, instances: Sequence[Instance], waiting: set[int]) -> set[bytes]:
        """Read, and hand over; answers who had something new. ``waiting`` are the numbers of those who wait for it."""
        news: set[bytes] = set()
        left = sorted(instances, key=lambda instance: instance.process.id)
        while left:
            some, left = left[: limits.BATCH_RECORDS], left[limits.BATCH_RECORDS :]
            messages = await self.store.messages([(a.process.id, a.heard) for a in some], most=limits.BATCH_BYTES)
            if _may_be_cut(messages):  # those behind the last one that was told of are read for again
                last = max(message.process for message in messages if message.type is not MessageType.TERMINATE)
                read = [a for a in some if a.process.id <= last]
                some, left = read, some[len(read) :] + left
            found: dict[bytes, list[Message]] = {}
            for message in messages:
                found.setdefault(message.process, []).append(message)
            for instance in some:
                mine = found.get(instance.process.id, [])
                wanted = id(instance) in waiting
                if wanted and instance.fetching and not instance.gone:
                    await self._fetch(instance, mine)
                elif wanted or mine:
                    self.scheduler.heard(instance, mine, wanted=wanted)
            news.update(found)
        return news

    async def _fetch(self, instance: Instance, messages: Sequence[Message]) -> None:
        """Read the letters that somebody waits for, and hand them over with what is unheard."""
        asked = wanted(instance)
        letters = await self.store.messages(waiting=asked) if asked else []
        # While they were read, others may have told it to stop waiting; whatever it is, it goes on.
        instance.fetching = False
        self.scheduler.heard(instance, messages, wanted=True, letters=(asked, letters))


def _may_be_cut(messages: Sequence[Message]) -> bool:
    """Whether the store may have told less than there is; what it counts is not opened yet, and may be smaller."""
    told = (message for message in messages if message.type is not MessageType.TERMINATE)  # those are told in any case
    return sum(len(message.payload) + OPENED_BYTES for message in told) >= limits.BATCH_BYTES // 2


FoundLetters: TypeAlias = tuple[Sequence[LettersWanted], Sequence[Message]]
"""Which letters that wait in the store were asked for, and those found."""

NONE: FoundLetters = ((), ())


def hear(instance: Instance, message: Message) -> None:
    """Hand a letter to the code that awaits it, or leave it in the inbox; a few are kept in memory too."""
    box = instance.loop.mailbox(message.name)
    number = message.number
    awaited = box.awaited
    if number > instance.seen:  # else it was read again
        instance.seen = number
        if box.more or not (awaited or box.room):
            box.behind = number
            _leave(instance, number)
            return
    if awaited:
        instance.received(number, message.name)
    else:
        _leave(instance, number)
    instance.loop.message(message.type, message.name, message.payload, number, recorded=awaited)


def _leave(instance: Instance, number: int) -> None:
    if number > instance.process.seen:
        if not instance.consumed:
            instance.consumed = {}
        instance.consumed[number] = 0


def to_be_read(instance: Instance) -> bool:
    """Whether somebody waits for letters that are in the store: then nothing goes on before they were read."""
    instance.fetching = bool(wanted(instance))
    return instance.fetching


def wanted(instance: Instance) -> list[LettersWanted]:
    """The letters that are to be read before the next turn, since somebody waits for them."""
    return [
        LettersWanted(
            instance.process.id,
            box.name,
            box.cursor,
            instance.process.seen,
            instance.seen,
            min(max(limits.FIRST_RECORDS, 2 * box.asked), limits.BATCH_RECORDS),
        )
        for box in instance.loop.mailboxes.values()
        if box.wanting
    ]


def from_the_first(instance: Instance) -> None:
    """Have the letters in the store read from the first on: an old worker hears later ones and leaves earlier ones."""
    for box in instance.loop.mailboxes.values():
        box.cursor = 0


def fetched(instance: Instance, found: FoundLetters) -> None:
    """Letters were read that waited in the store: they come before all that was heard since."""
    asked, letters = found
    instance.fetching = False
    instance.at += 1  # the timer of whoever had no time to wait fires in the turn that hears of it, whatever comes
    for one in asked:
        mine = [letter for letter in letters if letter.name == one.name]
        whole = len(mine) < one.most and sum(len(letter.payload) for letter in mine) < limits.BATCH_BYTES // 2
        last = mine[-1].number if mine and not whole else one.upto
        instance.loop.mailbox(one.name).read(one.most, last)
    instance.inputs[:0] = [(EventType.MESSAGE_RECEIVED, letter, None) for letter in letters]
