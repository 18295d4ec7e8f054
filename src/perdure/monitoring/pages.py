"""The pages of a worker's monitoring server: its metrics, whether its loop turns, whether it is ready for work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perdure import limits
from perdure.errors import PerdureError
from perdure.kernel.names import LIBRARY
from perdure.monitoring.http import Page, ServedPages, text

if TYPE_CHECKING:
    from perdure.runtime.worker import Worker


def pages(worker: Callable[[], Worker | None], registry: Any) -> ServedPages:
    """The pages by their paths; ``worker`` gives the worker that is at work, ``registry`` is that of its metrics."""
    from perdure.monitoring.prometheus import CONTENT_TYPE, exposition

    async def metrics() -> Page:
        return Page(200, CONTENT_TYPE, exposition(registry))

    async def health() -> Page:
        return text(200, "passing: the event loop turns")

    async def ready() -> Page:
        trouble = await unready(worker())
        return text(200, "ready") if trouble is None else text(503, f"not ready: {trouble}")

    return {"/metrics": metrics, "/health": health, "/ready": ready}


async def unready(worker: Worker | None) -> str | None:
    """Why a worker should be given no work yet, or no more; None if it is ready."""
    if worker is None or worker.scheduler.draining:
        return "it does not work, or stops"
    if worker.incarnation.lost:
        return "it was ended by others, and is not registered again yet"
    registry = worker.registry
    if not registry.queues and all(kind.startswith(LIBRARY) for kind in registry.kinds):
        return "it serves no workflow and no queue"
    try:
        async with asyncio.timeout(limits.READY_SECONDS):
            await worker.store.now()
    except TimeoutError:
        return f"the database has not answered for {limits.READY_SECONDS:g} s"
    except PerdureError as error:
        return f"the database does not answer: {error}"
    return None
