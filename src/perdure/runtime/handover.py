"""A handover: an old worker has claimed a process that only a newer one can go on with, and leaves it to that one.

While a deployment is under way old and new workers claim the same processes. Newer code may have written what the older
code does not know: a patch that it does not ask for, an event of an unknown type. That is no defect and needs no
person, so the process is not parked but put off, ever longer. If no worker takes it for long, there is no newer one:
then a person must see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure import limits
from perdure.kernel.event import Event
from perdure.kernel.patch import taken_in
from perdure.kernel.process import Process
from perdure.kernel.worker import Offer, Pair
from perdure.logs import logger

if TYPE_CHECKING:
    from perdure.runtime.holder import Holder
    from perdure.runtime.instance import Instance

log = logger("worker")

KNOWN = 10_000
"""How many processes are remembered; the one that was left to others longest ago is forgotten first."""


TIMES_IN_VAIN = 3
"""If a process has come back this often, other old workers take it again and again too."""
TIMES_LONGER = 7
"""How often the time doubles for which a worker keeps away from a kind: up to some minutes."""


class Handover:
    """Remembers which processes are left to other workers, since when, and how often each came back.

    ``offer`` is what this worker hosts and knows. ``schema_ahead`` is the
    number of the database's schema where that is newer than what this Perdure knows, else 0.
    """

    def __init__(self, scheduler: Holder) -> None:
        self.offer = Offer()
        self.schema_ahead = 0
        self._scheduler = scheduler
        self._since: dict[bytes, tuple[float, int]] = {}
        self._aside: dict[Pair, list[tuple[float, float]]] = {}

    def saw(self, schema: int, *, outgrown: bool = False) -> None:
        """A newer Perdure has migrated the database: log it once, and go on unless the schema has ``outgrown`` us."""
        known = self.offer.schema
        if outgrown and not self._scheduler.draining:
            log.error(
                "the database is at schema version %d, with which this worker (it knows %d) cannot work: it hands its "
                "processes back and claims no more; start it again with the newer Perdure",
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
        """Seconds for which to leave a process to other workers; None if none has taken it for long enough."""
        now = self._scheduler.parts.time.monotonic()
        since, times = self._since.pop(process.id, (now, 0))
        if now - since >= self._patience(process):
            return None
        self._since[process.id] = since, times + 1
        if len(self._since) > KNOWN:
            del self._since[next(iter(self._since))]
        seconds = min(limits.HANDOVER_FIRST_SECONDS * 2.0 ** min(times, 10), limits.HANDOVER_LONGEST_SECONDS)
        self._step_aside(process, now, seconds, times)
        return seconds

    def has_left(self, process: bytes) -> bool:
        """Whether a process was left to other workers when this one had it last."""
        return process in self._since

    def _step_aside(self, process: Process, now: float, seconds: float, times: int) -> None:
        """Let other workers look first: the one that releases a process knows when it is due, and would be the first.

        If it comes back all the same, other old workers take it in turn: then all keep away from its kind, ever longer.
        That is no loss, since a living worker with newer code serves this kind.
        """
        pair = (process.kind, process.code)
        if not any(
            pair in offer.hosted and self._goes_on(offer, pair)
            for offer in map(Offer.decode, self._scheduler.events.offers())
        ):
            return
        at_once = times >= TIMES_IN_VAIN or process.inbox > process.seen
        start = now if at_once else now + seconds
        until = start + limits.HANDOVER_ASIDE_SECONDS * 2.0 ** min(times, TIMES_LONGER)
        self._aside.setdefault(pair, []).append((start, until))

    def lets_by(self, pair: Pair) -> bool:
        """Whether this worker claims nothing of this kind and version just now, so that others look first."""
        if pair not in self._aside:
            return False
        now = self._scheduler.parts.time.monotonic()
        left = self._aside[pair] = [(start, until) for start, until in self._aside[pair] if now < until]
        if not left:
            del self._aside[pair]
        return any(start <= now for start, _ in left)

    @property
    def lets_any_by(self) -> bool:
        """Whether anything was left to others a moment ago."""
        return bool(self._aside)

    def _patience(self, process: Process) -> float:
        """Seconds to leave a process to others: more while a live worker has other code for it, or a newer Perdure."""
        pair = (process.kind, process.code)
        if any(self._goes_on(Offer.decode(hosts), pair) for hosts in self._scheduler.events.offers()):
            return limits.HANDOVER_SECONDS
        return limits.HANDOVER_ALONE_SECONDS

    def _goes_on(self, offer: Offer, pair: Pair) -> bool:
        """Whether a worker with that offer may be able to go on with a process where this one is not."""
        return offer.schema > self.offer.schema or offer.differs(self.offer, *pair)


def took_what_is_unknown(instance: Instance, history: Sequence[Event]) -> bool:
    """Whether newer code has run a process: its fields are of a newer form, or it has taken a patch unknown here.

    The code may also have reached its misfit before it would have asked: then a person sees that a little later.
    """
    machine = instance.loop.machine
    if machine is not None and machine.misfit is not None:
        return True
    patches = instance.loop.patches
    asked = {} if patches is None else patches.ways
    return any(name not in asked for name in taken_in(history))
