"""Sweep: workers whose lock is free: their OS process is gone. Seen within a second, on double evidence (rule 12)."""

from __future__ import annotations

from perdure.kernel.names import id_text
from perdure.limits import PROBE_AGAIN_SECONDS, PROBE_SECONDS
from perdure.logs import logger
from perdure.runtime.sweeps import owner_gone
from perdure.runtime.sweeps.context import SweepContext

log = logger("recovery")

SECONDS = PROBE_SECONDS
AGAIN_SECONDS = PROBE_AGAIN_SECONDS
"""The time between the two looks: only a worker that was found once is looked at again so soon."""
COUNTER = "workers_dead"


class Looks:
    """What was seen since our own session stands: ``held`` are the workers whose lock was taken at some look.

    ``free`` has the beats of every worker whose lock was free at the last look.
    """

    def __init__(self) -> None:
        self.free: dict[bytes, int] = {}
        self.held: set[bytes] = set()
        self._since: float | None = None

    def standing(self, since: float | None) -> None:
        """Forget all if our own session was lost since the last look: the locks may be those of another server."""
        if since != self._since:
            self.free, self.held, self._since = {}, set(), since


async def sweep(context: SweepContext, looks: Looks, *, in_grace: bool = False) -> int:
    """End incarnations whose lock was free at two looks with no beat between them, and free what they held.

    While sessions may still come back (``in_grace``), a free lock tells only of a worker that has been seen to hold it:
    its session stood on this server, and has ended.
    """
    workers = [worker for worker in await context.workers() if worker.locked and worker.id != context.incarnation.id]
    looks.held &= {worker.id for worker in workers}
    looks.held |= {worker.id for worker in workers if not worker.lock_free}
    free = {worker.id: worker for worker in workers if worker.lock_free and (not in_grace or worker.id in looks.held)}
    twice = [worker for worker in free.values() if looks.free.get(worker.id) == worker.beats]
    looks.free = {worker.id: worker.beats for worker in free.values()}
    found = f"dead workers: {', '.join(worker.name for worker in twice)}"
    if twice and not await context.may_recover(found, len(twice)):
        return 0
    ended = 0
    for worker in twice:
        if await context.store.retire(worker.id, worker.beats, died=True):
            log.warning(
                "worker %s (%s) is dead: its lock is free and it beats no more", worker.name, id_text(worker.id)
            )
            ended += 1
    if ended:
        await owner_gone.free_all(context)
    return ended
