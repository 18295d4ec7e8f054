"""The entry of a solitary worker: runs the suspects that are due, one after the other, and ends.

Started by :mod:`perdure.runtime.solitary` with the pace, the queues and labels, then the modules that define the code.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from msgspec import json

from perdure.authoring.registry import Registry
from perdure.engine import Engine
from perdure.runtime.pace import Pace

PATIENCE_SECONDS = 3.0
"""How long a solitary worker waits for another suspect before it ends."""


async def run_alone(engine: Engine) -> None:
    """Run one suspect at a time until none is due; SIGTERM stops gracefully, a second one at once."""
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


def main() -> None:
    """Read the command line that the runtime wrote, and run."""
    lease, beat, stop = map(float, sys.argv[1].split(","))
    registry = Registry()
    for source in sys.argv[3:]:
        registry.load(source)
    registry.serve_only(*json.decode(sys.argv[2]))
    pace = Pace(lease, beat, stop_seconds=stop)
    asyncio.run(run_alone(Engine(os.environ["PERDURE_URL"], work=True, registry=registry, pace=pace, alone=True)))


if __name__ == "__main__":
    main()
