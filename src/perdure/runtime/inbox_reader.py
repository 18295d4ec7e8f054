"""The inbox reader: fetches messages that processes held here have not heard, many processes at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

from perdure import limits
from perdure.errors import DamagedRecord
from perdure.kernel.message import LETTERS, Message
from perdure.kernel.stored import Undecodable
from perdure.loop import Loop
from perdure.runtime import turn
from perdure.runtime.turn_commit import rests
from perdure.store.base import Store, reached

if TYPE_CHECKING:
    from perdure.kernel.process import Process
    from perdure.runtime.events import WorkerEvents
    from perdure.runtime.instance import Instance
    from perdure.runtime.scheduler import Scheduler


TOLD_SECONDS = 0.25
"""A process whose last commit was answered this recently knows of its messages by that answer.

This does not hold for a process that waits for children: their answers come at any time.
"""
OPENED_BYTES = 256
"""A payload may be this much larger in the store than it is here."""
GAP_SECONDS = 0.001
"""Looks on a hint follow each other no faster than this, nor faster than they take."""


class InboxReader:
    """Reads for processes whose commit told of unheard messages, and for those that a hint names.

    Once a second, and on a hint that names none, it reads for all that are held here.
    """

    def __init__(self, store: Store, scheduler: Scheduler, events: WorkerEvents) -> None:
        self.store = store
        self.scheduler = scheduler
        self.events = events
        self.loop = Loop("signals", self._tick, scheduler.committer.outage)
        self._wanted: dict[Instance, None] = {}
        self._hinted = False
        self._named: dict[bytes, Process | None] = {}
        self._left: dict[bytes, Process | None] = {}
        self._look_at = 0.0

    def want(self, instance: Instance) -> None:
        """The process is known to have unheard messages: it waits for them before it goes on."""
        self._wanted[instance] = None
        self.loop.wake()

    def hint(self) -> None:
        """A message was sent to some process: look whether this worker holds that process."""
        self._hinted = True
        self.loop.wake()

    def look(self, process: bytes) -> None:
        """A message was sent to this process: if this worker holds it, read its messages now."""
        self._named[process] = None
        self.loop.wake()

    def handed_over(self, instance: Instance, message: Message) -> bool:
        """Let a process hear a letter that was just sent from here, without a query; false if it must be read.

        It must be if others come before it, or if the process may be let go before it hears them. A turn that begins
        while a commit is under way is written by the next one, whose answer tells of what came in meanwhile.
        """
        inbox, commit = instance.inbox, instance.commit
        if (
            message.number != inbox.heard + 1
            or inbox.unheard
            or inbox.fetching
            or message.type not in LETTERS
            or instance.loop.finished
            or instance.leaving
            or instance.trouble is not None
            or instance in self.scheduler.replaying
            or (commit is not None and commit.after.owner is None)
        ):
            return False
        self.scheduler.heard(instance, (message,))
        return True

    async def _tick(self) -> float:
        # One that is gone may have been claimed again: of two instances of a process only the new one is read for.
        wanted = {instance: None for instance in self._wanted if not instance.gone}
        self._wanted = {}
        named, self._named = self._left | self._named, {}
        hinted, self._hinted = self._hinted, False
        began = self.scheduler.time.monotonic()
        told = self._idle(named, wanted)
        heard = list(told)
        if hinted or began >= self._look_at:
            others = [a for a in self.scheduler.instances.values() if a not in wanted]
            heard += [a for a in others if a not in told and self._may_have_news(a, began, hinted)]
            # The hint may have been for one of those left out, and newer than its last commit: look a moment later.
            self._look_at = began + (TOLD_SECONDS if hinted and len(heard) < len(others) else limits.POLL_SECONDS)
        try:
            news = await self._read([*wanted, *heard], wanted)
        except BaseException:
            self._wanted = wanted | self._wanted
            self._named = named | self._named
            raise
        if quiet := [a.process.id for a in told if a.process.id not in news]:
            self.events.in_doubt(quiet)
        if self._wanted or self._named:
            return 0.0
        now = self.scheduler.time.monotonic()
        if self._hinted:  # there may be many hints: reading must leave time for other work
            await asyncio.sleep(max(GAP_SECONDS, now - began))
            return 0.0
        return max(0.0, min(TOLD_SECONDS if self._left else limits.POLL_SECONDS, self._look_at - now))

    def _idle(self, named: Mapping[bytes, Process | None], wanted: Container[Instance]) -> dict[Instance, None]:
        """Those of the named processes that are to be read for now; others are left until their commit is answered.

        The answer to a commit that was made after the hint has told of the message; an earlier one may not have. So of
        a process that is left the row is kept as it will be then: if it is another one, a later commit was answered.
        """
        idle: dict[Instance, None] = {}
        self._left = {}
        for id, before in named.items():
            instance = self.scheduler.instances.get(id)
            if instance is None or instance in wanted:
                continue
            if instance.commit is not None or instance.inputs:
                now = instance.process if instance.commit is None else instance.commit.after
                self._left[id] = now if before is None else before
            elif before is None or before is instance.process:
                idle[instance] = None
        return idle

    def _may_have_news(self, instance: Instance, now: float, hinted: bool) -> bool:
        """Whether to read for a process that no hint has named: not if its last commit has just told of messages."""
        if instance.commit is not None or instance.inputs:
            return False
        told = now + self.scheduler.lease_seconds - TOLD_SECONDS
        return instance.lease_end < told or (hinted and rests(instance))

    async def _read(self, instances: Sequence[Instance], waiting: Container[Instance]) -> set[bytes]:
        """Read and hand over messages; return the processes that had any. Those ``waiting`` may go on with them.

        They wait further if only a part of their messages was read, or if they were told of others meanwhile. What one
        read does not hold of an inbox comes at the next look, when the other processes have been read for too.
        """
        news: set[bytes] = set()
        left = sorted(instances, key=lambda instance: instance.process.id)
        while left:
            some, left = left[: limits.BATCH_RECORDS], left[limits.BATCH_RECORDS :]
            wants = [(a.process.id, a.inbox.heard) for a in some]
            messages = await self.store.messages(wants, most=limits.HEARD_BYTES)
            found: dict[bytes, list[Message]] = {}
            for message in messages:
                found.setdefault(message.process, []).append(message)
            cut = _cut(messages)  # those behind this process are read for again, and itself at the next look
            unread: list[Instance] = []
            for instance, (process, heard) in zip(some, wants, strict=True):
                if cut and process > cut:
                    unread.append(instance)
                    continue
                mine = found.get(process, [])
                wanted = instance in waiting and instance not in self._wanted and process != cut
                if wanted and instance.inbox.fetching and not instance.gone:
                    await self._fetch(instance, mine)
                elif wanted or mine:
                    if mine:
                        self.scheduler.bringing.crowded(process)
                    self.scheduler.heard(instance, mine, wanted=wanted)
                if process == cut and instance.inbox.heard > heard:
                    self.scheduler.await_messages(instance)
            left[:0] = unread
            news.update(found)
        return news

    async def _fetch(self, instance: Instance, messages: Sequence[Message]) -> None:
        """Read the letters that the code waits for, and hand them over with the unheard messages."""
        asked = turn.wanted(instance)
        try:
            letters = await self.store.messages(waiting=asked) if asked else []
        except DamagedRecord as missing:
            if not instance.gone:
                self.scheduler.unreadable.let_go(instance, missing)
            return
        # Whatever has happened to the process while they were read, it does not wait for letters any more.
        instance.inbox.fetch(())
        self.scheduler.heard(instance, messages, wanted=instance not in self._wanted, letters=(asked, letters))


def _cut(messages: Sequence[Message]) -> bytes:
    """The last process in the answer, if that may be cut at its limit, which the store counts by sealed payloads."""
    if not messages or sum(_size(one.payload) + OPENED_BYTES for one in messages) < limits.HEARD_BYTES // 2:
        return b""
    return reached(messages).process


def _size(payload: bytes) -> int:
    """The bytes of a payload; of one that could not be fetched there is a mere reference here."""
    return payload.size if isinstance(payload, Undecodable) else len(payload)
