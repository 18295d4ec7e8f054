"""What nobody offers: a worker says at its start how many processes wait for code that no live worker hosts."""

from __future__ import annotations

import logging

from perdure.errors import PerdureError
from perdure.kernel.backlog import COUNTED, Backlog, unoffered
from perdure.kernel.child import QUEUE_MARK, is_task
from perdure.store.base import Store

log = logging.getLogger("perdure")


async def report(store: Store) -> None:
    """Log a line for each kind and version that is not offered; a store that is away is no reason not to work."""
    try:
        backlogs = await store.records(Backlog)
        for backlog in unoffered(backlogs, await store.workers()):
            log.warning("%s", told(backlog))
    except PerdureError as error:
        log.warning("whether processes wait for code that nobody offers is not known: %s", error)


def told(backlog: Backlog) -> str:
    """What waits for whom, and what to do."""
    number = f"at least {COUNTED:,}" if backlog.processes >= COUNTED else str(backlog.processes)
    if is_task(backlog.kind):
        queue = backlog.kind.removeprefix(QUEUE_MARK)
        label = f" on a worker with the label {backlog.code!r}" if backlog.code else ""
        return f"{number} steps wait in queue {queue!r}{label}, which no live worker serves; start one that does"
    version = f" version {backlog.code!r}" if backlog.code else ""
    return (
        f"{number} unfinished processes of kind {backlog.kind!r}{version} are left, and no live worker offers "
        f"that code; start one that does, or see `perdure ps --kind {backlog.kind}`"
    )
