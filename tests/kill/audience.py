"""A reader of an event stream, in an OS process of its own, killed between handling a batch and moving the position.

Arguments: the URL, and the file in which it writes down the positions that it has handled.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from perdure import Engine, limits


async def main(url: str, handled: str) -> None:
    """Handle one batch, and die."""
    limits.STREAM_LEASE_SECONDS = 0.5
    async with Engine(url) as engine, engine.streams.read("audit") as batches:
        batch = await anext(batches)
        with open(handled, "a") as file:
            file.writelines(f"{record.position}\n" for record in batch)
            file.flush()
            os.fsync(file.fileno())
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
