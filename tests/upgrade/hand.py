"""A worker of some release in an OS process of its own: ``python hand.py URL``, its ``src`` in PYTHONPATH.

It uses nothing but what the first release had.
"""

from __future__ import annotations

import asyncio
import sys

import perdure
from perdure import Engine
from tests.upgrade import flow


async def work(url: str) -> None:
    """Work until killed; a line on the output says that it has begun, and with which code."""
    engine = Engine(url, work=True, workflows=flow.WORKFLOWS, queues=["upgrade"])
    await engine.__aenter__()
    print(perdure.__file__, flush=True)
    await engine.run()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
