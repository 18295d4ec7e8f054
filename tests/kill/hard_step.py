"""A worker in whose cell a step runs that would never end; run as an OS process of its own, to be killed.

Arguments: the URL, and the path of the FIFO by which the step tells that it has begun.
"""

from __future__ import annotations

import asyncio
import sys

from perdure import Engine
from tests.runtime import hard


async def main(url: str, fifo: str) -> None:
    """Start the process, and work until somebody ends us."""
    async with Engine(url, work=True, workflows=[hard.holds]) as engine:
        await engine.start(hard.holds, fifo)
        await engine.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
