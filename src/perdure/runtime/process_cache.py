"""The process cache: processes that this worker has let go, and that go on from memory if nobody had them since.

A process that only waits is let go, so that any worker may go on with it. Here its code stays where it is, for as long
as there is room. The worker that claims such a process next is most likely this one. It then needs no replay, if the
row is as it was when it let go: token, version and last event tell. A process that has anything under way is not kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure import limits
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process
from perdure.runtime.instance import Instance


class ProcessCache:
    """At most so many processes, and as many bytes of histories, by id; the oldest ones are evicted first.

    ``rows`` are the tokens and versions of their rows.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._rows: dict[bytes, tuple[int, int]] = {}
        self._instances: dict[bytes, Instance] = {}
        self._weight = 0

    def __len__(self) -> int:
        return len(self._instances)

    @property
    def rows(self) -> Mapping[bytes, tuple[int, int]]:
        """What a claim says of them; it changes with the cache."""
        return self._rows

    def keep(self, instance: Instance) -> bool:
        """Keep a process that was let go, if it only waits; false if it was not kept."""
        if self.most == 0 or not only_waits(instance):
            return False
        process = instance.process
        self.evict(process.id)
        instance.drop(evict=False)
        self._instances[process.id] = instance
        self._rows[process.id] = process.token, process.version
        self._weight += instance.weight
        while len(self._instances) > self.most or self._weight > limits.CACHED_BYTES:
            self.evict(next(iter(self._instances)))
        return True

    def look(self, id: bytes) -> Instance | None:
        """The process, if it is here; it stays."""
        return self._instances.get(id)

    def take(self, process: Process) -> Instance | None:
        """The process of that row, if it is here and as the row was before its claim; it is not kept any longer.

        One whose row has changed is evicted.
        """
        instance = self._pop(process.id)
        if instance is None:
            return None
        before = instance.process
        if process.token == before.token + 1 and counts(process) == counts(before):
            return instance
        instance.drop()
        return None

    def evict(self, id: bytes) -> None:
        """Drop a process from memory, if it is here."""
        instance = self._pop(id)
        if instance is not None:
            instance.drop()

    def clear(self) -> None:
        """Drop all of them from memory, and keep no more."""
        self.most = 0
        while self._instances:
            self.evict(next(iter(self._instances)))

    def _pop(self, id: bytes) -> Instance | None:
        instance = self._instances.pop(id, None)
        if instance is not None:
            del self._rows[id]
            self._weight -= instance.weight
        return instance


def only_waits(instance: Instance) -> bool:
    """Whether nothing of a process is under way here, and it may stay: a replay would bring it to where it stands."""
    steps, inbox, outbox, process = instance.steps, instance.inbox, instance.outbox, instance.process
    away = 0 if outbox is None else len(outbox.out)
    return not (
        instance.inputs
        or instance.events
        or instance.leaving
        or instance.trouble is not None
        or steps.in_flight
        or steps.asked
        or steps.releasing
        or steps.retries
        or instance.loop.finished
        or inbox.unheard
        or inbox.fetching
        or inbox.consumed
        or inbox.heard != process.seen
        or process.deaths
        or (outbox is not None and outbox.pending)
        or (instance.loop.machine is not None and instance.loop.machine.passive)
        or len(instance.loop.open) > away
        or instance.number != process.events
    )


def counts(process: Process) -> tuple[int, int, int, int]:
    """What a row counts that nobody changes without holding it: by this memory knows it again."""
    return process.version, process.run, process.events, process.seen


def ends_with(instance: Instance, last: Sequence[Event]) -> bool:
    """Whether the history ends in memory as it was read: a restored backup may have gone another way."""
    if instance.last_event is None or not last:
        return instance.last_event is None and not last
    return _mark(last[-1]) == _mark(instance.last_event)


def _mark(event: Event) -> tuple[int, int, EventType, int, str, str]:
    """What tells an event from another one of the same number: its payload may be sealed, or elsewhere."""
    return event.number, event.turn, event.type, event.at, event.place, event.name
