"""The entry of a solitary worker: runs the suspects that are due, one after the other, and ends.

Started by :mod:`perdure.runtime.solitary` with the pace, then the modules or files that define the workflows.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from perdure.authoring.registry import Registry
from perdure.engine import Engine
from perdure.runtime.pace import Pace


PATIENCE_SECONDS = 3.0
"""How long a solitary worker waits for another suspect before it ends."""


async def run_alone(url: str, registry: Registry, pace: Pace) -> None:
    """Run one suspect at a time until none is due; SIGTERM stops gracefully."""
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    async with Engine(url, work=True, registry=registry, pace=pace, alone=True) as engine:
        try:
            assert engine.worker is not None
            await engine.worker.until_idle(PATIENCE_SECONDS)
        except asyncio.CancelledError:
            pass  # asked to stop: the engine closes as any other does


def main() -> None:
    """Read the command line that the runtime wrote, and run."""
    lease, beat = map(float, sys.argv[1].split(","))
    registry = Registry()
    for source in sys.argv[2:]:
        registry.load(source)
    asyncio.run(run_alone(os.environ["PERDURE_URL"], registry, Pace(lease_seconds=lease, beat_seconds=beat)))


if __name__ == "__main__":
    main()
