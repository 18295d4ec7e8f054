"""A sender under load, an OS process of its own: for each line of its input a hot process, and all messages to it.

Arguments: the URL and a JSON object: ``messages``. It prints each process that has heard them all; at the end of its
input it stops, so it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import json
import sys

from perdure.engine import Engine
from tests.load.loud import SENT_A_SECOND, sent
from tests.load.pool import LIMIT, orders
from tests.load.program import hot


async def main(url: str, messages: int) -> None:
    """Send until the input ends."""
    said = await orders()
    async with Engine(url, migrate=True) as engine:
        print("ready", flush=True)
        while await said.readline():
            handle = await engine.start(hot, messages)
            await sent(handle, messages, SENT_A_SECOND)
            await handle.result(LIMIT)
            print("heard", handle.id, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])["messages"]))
