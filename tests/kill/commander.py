"""A command that is killed in the middle, run as an OS process of its own: the process is taken, nothing decided.

Arguments: the URL, the kind of the process and its key.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from perdure import Engine
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event
from perdure.kernel.process import Process


def die(row: Process, history: Sequence[Event], now: int) -> Commit:
    """What a kill makes of the kernel's decision."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it lives")


async def main(url: str, kind: str, key: str) -> None:
    """Seize the process as a terminate does that has been outrun."""
    async with Engine(url, migrate=True) as engine:
        await (await engine.handle(kind, key))._seized(die)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
