"""A handover: an old worker has claimed what only a newer one can go on with, and leaves it to that one.

While a deployment is under way old and new workers claim the same processes. What newer code has written may be more
than the older code knows: a patch that it does not ask for, an event of a type that it has never heard of. That is no
defect and no person's business, so such a process is put off, ever longer, and not parked. If nobody takes it for long,
there is no newer worker: then a person must see it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from perdure import limits
from perdure.kernel.event import Event
from perdure.kernel.patch import taken_in
from perdure.kernel.process import Process
from perdure.kernel.worker import Offer, Pair
from perdure.logs import logger

if TYPE_CHECKING:
    from perdure.runtime.instance import Instance
    from perdure.runtime.scheduler import Scheduler

log = logger("worker")

KNOWN = 10_000
"""So many processes are remembered; the one that was left to others longest ago is forgotten first."""


TIMES_IN_VAIN = 3
"""If a process has come back so often, not only this worker takes it again and again."""
TIMES_LONGER = 7
"""So often the time doubles for which a worker keeps away from a kind: to some minutes."""


class Handover:
    """Remembers since when which process is left to others, and how often it came back.

    ``offer`` is what this worker says of itself, ``others`` what all other living ones do. ``schema_ahead`` is the
    number of the database's schema where that is newer than what this Perdure knows, else 0.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.offer = Offer()
        self.others: Callable[[], Sequence[bytes]] = tuple
        self.schema_ahead = 0
        self._scheduler = scheduler
        self._since: dict[bytes, tuple[float, int]] = {}
        self._aside: dict[Pair, list[tuple[float, float]]] = {}

    def saw(self, schema: int, *, outgrown: bool = False) -> None:
        """A newer Perdure has migrated the database: say so once, and go on with what is understood, if that may be."""
        known = self.offer.schema
        if outgrown and not self._scheduler.draining:
            log.error(
                "the database is at schema version %d, beside which this worker (it knows %d) cannot go on: it hands "
                "back what it has and takes nothing more; start it again with the newer Perdure",
                schema,
                known,
            )
            self._scheduler.drain()
        elif self.schema_ahead < schema:
            log.warning(
                "the database is at schema version %d, and this worker knows %d: it goes on with what it knows, and "
                "leaves the rest to newer workers; upgrade it",
                schema,
                known,
            )
        self.schema_ahead = schema

    def wait(self, process: Process) -> float | None:
        """Seconds for which a process is to be left to others; None if nobody has taken it for long enough."""
        now = self._scheduler.time.monotonic()
        since, times = self._since.pop(process.id, (now, 0))
        if now - since >= self._patience(process):
            return None
        self._since[process.id] = since, times + 1
        if len(self._since) > KNOWN:
            del self._since[next(iter(self._since))]
        seconds = min(limits.HANDOVER_FIRST_SECONDS * 2.0 ** min(times, 10), limits.HANDOVER_LONGEST_SECONDS)
        self._step_aside(process, now, seconds, times)
        return seconds

    def _step_aside(self, process: Process, now: float, seconds: float, times: int) -> None:
        """Whoever lets it go knows best when it is due, and would be the first to take it again: others look first.

        If it comes back all the same, other old workers take it in turn: then all keep away from its kind, ever longer.
        That is no loss, since one lives that serves this kind.
        """
        pair = (process.kind, process.code)
        if not any(pair in offer.hosted and self._goes_on(offer, pair) for offer in map(Offer.decode, self.others())):
            return
        at_once = times >= TIMES_IN_VAIN or process.inbox > process.seen
        start = now if at_once else now + seconds
        until = start + limits.HANDOVER_ASIDE_SECONDS * 2.0 ** min(times, TIMES_LONGER)
        self._aside.setdefault(pair, []).append((start, until))

    def lets_by(self, pair: Pair) -> bool:
        """Whether nothing of this kind and version is claimed here just now, so that others have the first look."""
        if pair not in self._aside:
            return False
        now = self._scheduler.time.monotonic()
        left = self._aside[pair] = [(start, until) for start, until in self._aside[pair] if now < until]
        if not left:
            del self._aside[pair]
        return any(start <= now for start, _ in left)

    @property
    def lets_any_by(self) -> bool:
        """Whether anything was left to others a moment ago."""
        return bool(self._aside)

    def _patience(self, process: Process) -> float:
        """How long it is left to others: longer while one lives that has other code for it, or a newer Perdure."""
        pair = (process.kind, process.code)
        if any(self._goes_on(Offer.decode(hosts), pair) for hosts in self.others()):
            return limits.HANDOVER_SECONDS
        return limits.HANDOVER_ALONE_SECONDS

    def _goes_on(self, offer: Offer, pair: Pair) -> bool:
        """Whether whoever offers that may be able to go on with what we are not."""
        return offer.schema > self.offer.schema or offer.differs(self.offer, *pair)


def took_what_is_unknown(instance: Instance, history: Sequence[Event]) -> bool:
    """Whether a process has taken a patch that the code here has not asked for: newer code has had it in hand.

    The code may also have come to its misfit before it would have asked: then a person sees it a little later.
    """
    patches = instance.loop.patches
    asked = {} if patches is None else patches.ways
    return any(name not in asked for name in taken_in(history))
