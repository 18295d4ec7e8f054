"""The entry of a solitary worker: claims one suspect, runs it until it is out of hand, and ends.

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


async def run_alone(url: str, registry: Registry, pace: Pace) -> None:
    """Run one suspect, then stop."""
    async with Engine(url, work=True, registry=registry, pace=pace, alone=True) as engine:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, engine.stop_soon)
        await engine.until_idle()


def main() -> None:
    """Read the command line that the runtime wrote, and run."""
    lease, beat = map(float, sys.argv[1].split(","))
    registry = Registry()
    for source in sys.argv[2:]:
        registry.load(source)
    asyncio.run(run_alone(os.environ["PERDURE_URL"], registry, Pace(lease_seconds=lease, beat_seconds=beat)))


if __name__ == "__main__":
    main()
