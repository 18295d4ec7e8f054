"""The entry of a solitary worker: runs the suspects that are due, one group after the other, and ends.

Started by :mod:`perdure.runtime.solitary` with the pace, the queues and labels, then the modules that define the code.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence

from msgspec import json

from perdure.authoring.registry import Registry, module_of, workflows_of
from perdure.engine import Engine
from perdure.runtime.pace import Pace

log = logging.getLogger("perdure")

PATIENCE_SECONDS = 3.0
"""How long a solitary worker waits for other suspects before it ends."""


async def run_alone(engine: Engine) -> None:
    """Run one group of suspects at a time until none is due; SIGTERM stops gracefully, a second one at once."""
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            engine.hurry()
        stopping.set()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    async with engine:
        assert engine.worker is not None
        ends = [
            asyncio.create_task(engine.worker.until_idle(PATIENCE_SECONDS)),
            asyncio.create_task(stopping.wait()),
        ]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        if cleared := engine.telemetry.counters["suspects_cleared"]:
            log.warning("%d suspects were cleared in quarantine, and go on with ordinary workers", cleared)


def hosted(served: tuple[list[str], list[str]], sources: Sequence[str]) -> Registry:
    """The workflows of these modules, and these queues and labels, though several steps may have one name."""
    registry = Registry()
    for source in sources:
        for workflow in workflows_of(vars(module_of(source)).values()):
            registry.add(workflow)
    registry.serve_only(*served)
    return registry


def main() -> None:
    """Read the command line that the runtime wrote, and run."""
    lease, beat, stop = map(float, sys.argv[1].split(","))
    registry = hosted(json.decode(sys.argv[2]), sys.argv[3:])
    pace = Pace(lease, beat, stop_seconds=stop, exit_when_hung=True)
    asyncio.run(run_alone(Engine(os.environ["PERDURE_URL"], work=True, registry=registry, pace=pace, alone=True)))


if __name__ == "__main__":
    main()
