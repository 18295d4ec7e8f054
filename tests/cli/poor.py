"""A worker that is soon out of threads: imported by real workers, which give up after a moment instead of a minute."""

from __future__ import annotations

import os
import threading

from perdure import Retry, limits, step, workflow
from perdure.errors import StepTimeout

if "PERDURE_TEST_POOR" in os.environ:
    limits.LEFT_BEHIND_THREADS = 2
    limits.SHORTAGE_RESTART_SECONDS = 0.2
    limits.SHORTAGE_AGAIN_SECONDS = 0.05
    limits.SHORTAGE_WAIT_SECONDS = 0.1


@step(retry=Retry.NONE, timeout=0.05)
def hang() -> None:
    """Never come back."""
    threading.Event().wait()


@step(retry=Retry.NONE)
def add(number: int) -> int:
    """Add one, in a thread."""
    return number + 1


@workflow
async def hanging() -> str:
    """Leave a thread behind."""
    try:
        await hang()
    except StepTimeout:
        pass
    return "left behind"


@workflow
async def adding(number: int) -> int:
    """Need a thread."""
    return await add(number)
