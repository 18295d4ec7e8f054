"""Which kinds a worker claims: all that it hosts and can serve now, and each queue that it limits by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.authoring.registry import Registry
    from perdure.runtime.scheduler import Scheduler


class ClaimKinds:
    """The kinds and versions that one worker claims."""

    def __init__(self, registry: Registry, scheduler: Scheduler) -> None:
        self._registry = registry
        self._scheduler = scheduler
        self._looks = 0

    def in_turn(self, room: int, left: Callable[[], int]) -> Iterator[tuple[tuple[tuple[str, str], ...], int]]:
        """What to claim while there is room, and how much of it: each limited queue by itself, the rest together.

        They take turns to be the first: where there is little room, none of them gets all of it. ``left`` tells after
        each how much room there is.
        """
        limited = {kind: queue.at_most for kind, queue in self._registry.queues.items() if queue.at_most is not None}
        kinds = [None, *limited]
        first = self._looks % len(kinds)
        self._looks += 1
        for kind in kinds[first:] + kinds[:first]:
            if kind is None:
                yield self.unlimited(), room
            else:
                held = sum(instance.process.kind == kind for instance in self._scheduler.instances.values())
                if held >= limited[kind]:
                    continue
                yield tuple(pair for pair in self._hosted() if pair[0] == kind), min(room, limited[kind] - held)
            if room > 0 and (room := left()) <= 0:
                return

    def unlimited(self) -> tuple[tuple[str, str], ...]:
        """The kinds and versions hosted here to which no limit of this worker applies."""
        hosted, queues = self._hosted(), self._registry.queues
        if not self._registry.limited:
            return hosted
        return tuple(pair for pair in hosted if pair[0] not in queues or queues[pair[0]].at_most is None)

    def _hosted(self) -> tuple[tuple[str, str], ...]:
        """The kinds and versions hosted here, without those that this worker cannot serve now."""
        hosted, shortages = self._registry.hosted, self._scheduler.shortages
        handover = self._scheduler.unreadable.handover
        if handover.lets_any_by:
            hosted = tuple(pair for pair in hosted if not handover.lets_by(pair))
        if not (shortages.unserved or shortages.held_back):
            return hosted
        return tuple(pair for pair in hosted if shortages.serves(pair[0]))
