"""Health: whether anything needs a person or a worker now, in a few checks that cost a few indexed queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.clock import SECOND
from perdure.kernel import hosting
from perdure.kernel.child import is_task
from perdure.kernel.clock import STEP, Clock
from perdure.kernel.names import LIBRARY
from perdure.kernel.process import Status
from perdure.kernel.worker import COUNTED, Backlog, WorkerRow, unhosted
from perdure.store.base import Search, Store, switch


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """One check by ``name``: whether it passes, and what was found."""

    name: str
    passing: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Health:
    """Whether all checks are ``passing``, and each of them."""

    passing: bool
    checks: tuple[HealthCheck, ...]


async def health(store: Store) -> Health:
    """Check the workers, what they do not host, queues without a worker, broken processes, recovery and the clock."""
    now, workers = await store.now(), await store.workers()
    (clock,) = await store.records(Clock)
    recovery = await switch(store)
    alive = [worker for worker in workers if hosting.lives(worker, now)]
    silent = [worker for worker in workers if worker not in alive]
    backlogs = unhosted(await store.records(Backlog), alive)
    broken = sum(number for _, _, number in await store.count(Search(statuses=(Status.BROKEN,), tasks=True)))
    paused = recovery.blocked_at is not None
    lead = abs(clock.lead) > STEP
    checks = (
        HealthCheck("workers", bool(alive), f"{len(alive):,} live workers"),
        HealthCheck("worker_beats", not silent, _workers(silent)),
        HealthCheck("workflows_hosted", *_backlog([one for one in backlogs if not is_task(one.kind)])),
        HealthCheck("queues_polled", *_backlog([one for one in backlogs if is_task(one.kind)])),
        HealthCheck("nothing_broken", not broken, f"{broken:,} processes are broken"),
        HealthCheck("recovery", not paused, f"automatic recovery is {'paused' if paused else 'on'}"),
        HealthCheck(
            "clock", not lead, f"the store's time is {clock.lead / SECOND:,.0f} s ahead of its machine's clock"
        ),
    )
    return Health(all(check.passing for check in checks), checks)


def _workers(silent: Sequence[WorkerRow]) -> str:
    return f"dead or silent: {hosting.names(silent)}" if silent else "every worker beats"


def _backlog(backlogs: Sequence[Backlog]) -> tuple[bool, str]:
    """What waits for code or a queue that no live worker has. The library's own processes wait for any worker."""
    told = [
        f"{'at least ' if one.processes >= COUNTED else ''}{one.processes:,} wait for a worker that "
        f"{hosting.wanted(one.kind, one.code)}"
        for one in backlogs
        if not one.kind.startswith(LIBRARY)
    ]
    return not told, "; ".join(told) or "nothing waits for a worker that is not there"
