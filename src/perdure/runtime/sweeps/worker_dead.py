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
    """What the last look saw: the beats of every worker whose lock was free then."""

    def __init__(self) -> None:
        self.free: dict[bytes, int] = {}


async def sweep(context: SweepContext, looks: Looks) -> int:
    """End incarnations whose lock was free at two looks with no beat between them, and free what they held."""
    free = {
        worker.id: worker
        for worker in await context.workers()
        if worker.locked and worker.lock_free and worker.id != context.incarnation.id
    }
    twice = [worker for worker in free.values() if looks.free.get(worker.id) == worker.beats]
    looks.free = {worker.id: worker.beats for worker in free.values()}
    if twice and not await context.may_recover(f"dead workers: {', '.join(worker.name for worker in twice)}"):
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
