"""A takeover: a lapsed lease is claimed before any sweep has come to see that its owner died. That is a death too.

Else a process that kills its worker would go uncounted wherever the next worker comes only after the lease: one worker
that is started again a little later each time would never be rid of it (rule 13).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from perdure.answer import asked
from perdure.kernel import transition
from perdure.kernel.names import id_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.kernel.commit import Commit
    from perdure.kernel.lease import Claimed
    from perdure.kernel.worker import Worker
    from perdure.runtime.scheduler import Scheduler
    from perdure.store.base import Store


async def without_the_dead(store: Store, scheduler: Scheduler, claimed: Sequence[Claimed]) -> Sequence[Claimed]:
    """Free again what was claimed from workers that died, each death counted; the answer is what may go on at once."""
    if not any(one.was_owned_by for one in claimed):
        return claimed
    dead = {worker.id: worker for worker in await store.workers(ended=True) if died(worker)}
    # If we die here the rows are ours, and our death is seen or their lease lapses as it has before.
    commits = [_freed(scheduler, one, dead[one.was_owned_by]) for one in claimed if one.was_owned_by in dead]
    await asyncio.gather(*(asked(scheduler.committer.commit, commit) for commit in commits))
    return [one for one in claimed if one.was_owned_by not in dead]


def died(worker: Worker) -> bool:
    """Whether there is evidence that a worker which renews no lease has died: it was found so, or its lock is free."""
    return worker.died or (worker.ended_at is None and worker.locked and worker.lock_free)


def _freed(scheduler: Scheduler, claimed: Claimed, worker: Worker) -> Commit:
    name, time = f"{worker.name} {id_text(worker.id)}", scheduler.time
    return transition.orphaned(claimed.process, now=time.now(), died=True, worker=name, idle_at=time.idle_at())
