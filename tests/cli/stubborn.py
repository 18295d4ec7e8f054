"""A worker whose steps leave something behind that does not end: imported by real workers."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

from perdure import Engine, Retry, limits, step, workflow
from perdure.errors import StepTimeout

limits.END_GRACE_SECONDS = float(os.environ.get("PERDURE_TEST_GRACE", limits.END_GRACE_SECONDS))

own = ThreadPoolExecutor(1)
left: list[asyncio.Task[None]] = []


async def hang(engine: Engine, seconds: float | None = None) -> None:
    """Never be closed."""
    print("it is to be closed", flush=True)
    await asyncio.Event().wait()


if "PERDURE_TEST_UNCLOSED" in os.environ:
    Engine.close = hang  # type: ignore[method-assign]


async def stay() -> None:
    """Be cancelled in vain."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


@step(retry=Retry.NONE, timeout=0.05)
async def leave(what: str) -> None:
    """Leave behind a call in a thread of the event loop, one in a thread of an executor's, or a task."""
    if what == "call":
        await asyncio.to_thread(threading.Event().wait)
    elif what == "call of its own":
        await asyncio.get_running_loop().run_in_executor(own, threading.Event().wait)
    else:
        left.append(asyncio.create_task(stay()))


@workflow
async def leaving(what: str) -> str:
    """Leave something behind."""
    try:
        await leave(what)
    except StepTimeout:
        pass
    return f"left a {what}"
