"""Bringing: a call from this program to a process that is held here, and only waits, needs one transaction and not two.

A process that was let go, and waits in the cache for such a call, is *recalled*: claimed although it is not due. That
is one transaction more, where to send the call and to claim what it has made due are two.

It is heard before it is stored. The commit of the turn that receives it brings it into the inbox, under the number
after the last one that was heard. If another message has got that number meanwhile, nothing of the turn is written: the
process is let go, since its code has heard what never came, and the call is *turned away*: it is sent like any other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from perdure.errors import BadRecord, StoreError
from perdure.kernel.commit import APPLIED, Commit, CommitAnswer, Verdict
from perdure.kernel.message import Message, OnBrought, Written
from perdure.runtime.holder import Holder
from perdure.runtime.process_cache import only_waits

if TYPE_CHECKING:
    from perdure.runtime.instance import Instance

CROWDED_SECONDS = 1.0
"""A process to which others have sent a message this recently is brought none: theirs may come first again."""


class Bringing:
    """Brings letters to the processes of one scheduler."""

    def __init__(self, scheduler: Holder) -> None:
        self._scheduler = scheduler
        self._crowded: OrderedDict[bytes, float] = OrderedDict()  # in the order in which their time is over
        self._recalled: dict[bytes, tuple[Message, OnBrought]] = {}

    def bring(self, message: Message, written: OnBrought) -> bool:
        """Let a process hear a letter that is not stored; false if it must be sent. See LocalWorker."""
        scheduler = self._scheduler
        instance = scheduler.instances.get(message.process)
        if instance is None:
            return self._recall(message, written)
        if not self._may(instance, message.name):
            return False
        self._hear(instance, message, written)
        scheduler.feed(instance)
        return True

    def _recall(self, message: Message, written: OnBrought) -> bool:
        """Claim a process that rests in the cache: it hears the letter once it is held, or that is turned away."""
        process = message.process
        instance = self._scheduler.cache.look(process)
        if instance is None or process in self._recalled or not self._may(instance, message.name):
            return False
        self._recalled[process] = message, written
        self._scheduler.events.undue((process,))
        return True

    def recalled(self, instance: Instance) -> None:
        """A process goes on from memory: it hears the letter for which it was claimed, if no other came first."""
        process = instance.process.id
        if process not in self._recalled:
            return
        if instance.inputs or not self._may(instance, self._recalled[process][0].name):
            self.turn_away((process,))
        else:
            self._scheduler.parts.telemetry.count("calls_recalled")
            self._hear(instance, *self._recalled.pop(process))

    def turn_away(self, processes: Iterable[bytes]) -> list[bytes]:
        """Have the letters for these processes sent like any others, unless they were heard; return whose they are."""
        turned = [process for process in processes if process in self._recalled]
        for process in turned:
            self._scheduler.parts.telemetry.count("calls_turned_away")
            self._recalled.pop(process)[1](None)
        return turned

    def turn_all_away(self) -> None:
        """Claim nothing more: have every letter sent that no process has heard yet."""
        self.turn_away(list(self._recalled))

    def _hear(self, instance: Instance, message: Message, written: OnBrought) -> None:
        counters = self._scheduler.parts.telemetry.counters
        counters["calls_brought"] += 1
        counters["messages"] += instance.hear((instance.inbox.bring(message, written),))

    def _may(self, instance: Instance, name: str) -> bool:
        """Whether a process waits for a letter of that name and for nothing else that is under way.

        Then its next turn receives it, and nothing is lost with that turn if it is not written.
        """
        box = instance.loop.mailboxes.get(name)
        if box is None or box.more or not box.awaited or instance.commit is not None or not only_waits(instance):
            return False
        scheduler = self._scheduler
        if scheduler.draining or instance in scheduler.replaying:
            return False
        until = self._crowded.get(instance.process.id)
        if until is None:
            return True
        if until > scheduler.parts.time.monotonic():
            return False
        del self._crowded[instance.process.id]
        return True

    def crowded(self, process: bytes) -> None:
        """Others send messages to this process."""
        crowded, now = self._crowded, self._scheduler.parts.time.monotonic()
        crowded[process] = now + CROWDED_SECONDS
        crowded.move_to_end(process)
        while next(iter(crowded.values())) <= now:
            crowded.popitem(last=False)

    def answered(self, instance: Instance, commit: Commit, answer: CommitAnswer | StoreError) -> bool:
        """The commit that brings a letter was answered; true if its process has been let go for that.

        If it was not written because of what it brings, the process goes on at once, without it.
        """
        brought = instance.inbox.brought_in()
        if isinstance(answer, CommitAnswer) and answer.verdict is APPLIED:
            brought.written(Written(brought.letter.number, commit.events))
            return False
        # If we die here the call was never accepted, and the process is ours until our death is seen.
        self.crowded(instance.process.id)
        late = isinstance(answer, BadRecord) or (
            isinstance(answer, CommitAnswer) and answer.verdict is Verdict.READ_FIRST
        )
        if late and not instance.gone:
            instance.unwritten()
            self._scheduler.release(instance)
        self._scheduler.parts.telemetry.count("calls_turned_away")
        brought.written(None)
        return late
