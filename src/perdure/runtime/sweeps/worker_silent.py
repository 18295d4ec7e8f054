"""Sweep: workers whose beat is overdue: hung, cut off, or on a machine gone dark. They are ended."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.kernel.names import id_text
from perdure.kernel.worker import WorkerRow
from perdure.limits import PROBE_SECONDS
from perdure.logs import logger
from perdure.runtime.release import died
from perdure.runtime.sweeps import owner_gone
from perdure.runtime.sweeps.context import SweepContext

log = logger("recovery")

SECONDS = 1.0
COUNTER = "workers_silent"


async def sweep(context: SweepContext) -> int:
    """End silent incarnations, by compare-and-set on their beats, and free what they held."""
    if not context.events.steady():
        return 0  # the store was away: no worker could beat
    # What the probe has read a moment ago will do: a worker that has beaten since has other beats, and is not ended.
    workers = [one for one in await context.workers(PROBE_SECONDS * 2) if one.id != context.incarnation.id]
    silent = _overdue(workers, context.time.now())
    if silent:  # after a clock was set back, our estimate of the store's time is ahead of the one by which they beat
        silent = _overdue(silent, await context.store.now())
    if context.grace() > 0:  # a free lock may be taken again: the sweep of dead workers decides after the grace
        silent = [worker for worker in silent if not died(worker)]
    found = f"silent workers: {', '.join(worker.name for worker in silent)}"
    if silent and not await context.may_recover(found, len(silent)):
        return 0
    ended = 0
    for worker in silent:
        # A silent worker may still live: only a free lock is evidence of its death (rule 13).
        if await context.store.retire(worker.id, worker.beats, died=died(worker)):
            log.warning("worker %s (%s) has fallen silent and was ended", worker.name, id_text(worker.id))
            ended += 1
    if ended:
        await owner_gone.free_all(context)
    return ended


def _overdue(workers: Sequence[WorkerRow], now: int) -> list[WorkerRow]:
    return [worker for worker in workers if worker.due_at is not None and worker.due_at <= now]
