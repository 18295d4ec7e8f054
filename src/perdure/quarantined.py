"""The entry of a quarantine worker: runs the suspects that are due, one group after the other, and ends.

Started by :mod:`perdure.runtime.quarantine` with the options, the queues and labels, then the modules that define the
code.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import json

from perdure import limits
from perdure.authoring.registry import Registry, module_of, workflows_of
from perdure.engine import Engine
from perdure.errors import StoreUnavailable
from perdure.logs import logger, speak
from perdure.runtime import os_process
from perdure.runtime.options import WorkerOptions
from perdure.runtime.os_process import last_resort, signs, watch_parent
from perdure.runtime.watchdog import aside

log = logger("quarantine")

LINE = 0
"""Our end of the line to the parent: the standard input."""
AGAIN_SECONDS = 1.0
"""How long it waits before it tries again to reach the store."""
PATIENCE_SECONDS = 3.0
"""How long a quarantine worker waits for other suspects before it ends."""


async def run_alone(build: Callable[[], Engine], line: int | None = None) -> None:
    """Run one group of suspects at a time until none is due; SIGTERM stops gracefully, a second one at once.

    The end of the parent, which shows on the ``line`` to it, counts as SIGTERM. While the store cannot be reached, the
    worker waits.
    """
    stopping = asyncio.Event()
    engine = build()

    def stop() -> None:
        if stopping.is_set():
            engine.hurry()
        elif line is not None:
            aside(partial(last_resort, engine.options.stop_seconds + limits.END_GRACE_SECONDS), "perdure last resort")
        stopping.set()

    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, stop)
    if line is not None:
        watch_parent(line, stop, engine.options.stop_seconds + limits.END_GRACE_SECONDS)
    while not stopping.is_set():
        try:
            await engine.__aenter__()
        except StoreUnavailable as error:
            log.warning("%s Trying again every second.", error)
            await _pause(stopping, AGAIN_SECONDS)
            engine = build()
        else:
            await _work(engine, stopping, stop, line)
            return


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait([waiting], timeout=seconds)
    waiting.cancel()


async def _work(engine: Engine, stopping: asyncio.Event, stop: Callable[[], None], line: int | None) -> None:
    assert engine.worker is not None
    try:
        if line is not None:
            engine.worker.watchdog.sign_by(signs(line))
        ends = [
            asyncio.create_task(engine.worker.until_idle(PATIENCE_SECONDS)),
            asyncio.create_task(stopping.wait()),
        ]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        if cleared := engine.telemetry.counters["suspects_cleared"]:
            log.warning("%d suspects were cleared in quarantine, and go on with ordinary workers", cleared)
    finally:
        if not stopping.is_set():
            stop()  # from here on its time is limited, whatever its steps have left behind
        await engine.close()


def hosted(served: tuple[list[str], list[str]], sources: Sequence[str]) -> Registry:
    """A registry of the workflows of these modules, and of these queues and labels; several steps may share a name."""
    registry = Registry()
    for source in sources:
        for workflow in workflows_of(vars(module_of(source)).values()):
            registry.add(workflow)
    registry.serve_only(*served)
    return registry


def main() -> None:
    """Read the command line that the runtime wrote, and run."""
    speak()
    lease, beat, stop = map(float, sys.argv[1].split(","))
    registry = hosted(json.decode(sys.argv[2]), sys.argv[3:])
    options = WorkerOptions(lease, beat, stop_seconds=stop, exit_when_hung=True)

    def build() -> Engine:
        return Engine(os.environ["PERDURE_URL"], work=True, registry=registry, options=options, alone=True)

    os_process.run(run_alone(build, LINE))


if __name__ == "__main__":
    main()
