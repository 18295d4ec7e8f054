"""A takeover: a lapsed lease is claimed before any sweep has come to see that its owner died. That is a death too.

Else a process that kills its worker would go uncounted wherever the next worker comes only after the lease: one worker
that is started again a little later each time would never be rid of it (rule 13).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure.answer import asked
from perdure.kernel import quarantine, transition
from perdure.kernel.names import id_text
from perdure.kernel.worker import Hang
from perdure.runtime.solitary import report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.kernel.commit import Commit
    from perdure.kernel.lease import Claimed
    from perdure.kernel.worker import Worker
    from perdure.runtime.scheduler import Scheduler
    from perdure.store.base import Store


async def without_the_dead(store: Store, scheduler: Scheduler, claimed: Sequence[Claimed]) -> Sequence[Claimed]:
    """Free again what was claimed from workers that died, each death counted; the answer is what may go on at once.

    So it is with the one process that has hung its worker, whether that lives or not.
    """
    if not any(one.was_owned_by for one in claimed):
        return claimed
    workers = {worker.id: worker for worker in await store.workers(ended=True)}
    guilty = {
        one.process.id: worker
        for one in claimed
        if one.was_owned_by in workers and (died(worker := workers[one.was_owned_by]) or _hung(one, worker))
    }
    # If we die here the rows are ours, and our death is seen or their lease lapses as it has before.
    before = [replace(one.process, owner=one.was_owned_by) for one in claimed if one.process.id in guilty]
    held = quarantine.held_by(before)
    commits = [
        _freed(scheduler, one, guilty[one.process.id], held[one.was_owned_by or b""])
        for one in claimed
        if one.process.id in guilty
    ]
    await asyncio.gather(*(asked(scheduler.committer.commit, commit) for commit in commits))
    report(before, commits, scheduler.telemetry)
    return [one for one in claimed if one.process.id not in guilty]


def _hung(claimed: Claimed, worker: Worker) -> bool:
    hang = Hang.read(worker.hang)
    return hang is not None and hang.process == claimed.process.id


def died(worker: Worker) -> bool:
    """Whether there is evidence that a worker which renews no lease has died: it was found so, or its lock is free."""
    return worker.died or (worker.ended_at is None and worker.locked and worker.lock_free)


def _freed(scheduler: Scheduler, claimed: Claimed, worker: Worker, held: int) -> Commit:
    name, time = f"{worker.name} {id_text(worker.id)}", scheduler.time
    now, idle_at, hang = time.now(), time.idle_at(), Hang.read(worker.hang)
    return transition.orphaned(claimed.process, now=now, died=True, worker=name, idle_at=idle_at, held=held, hang=hang)
