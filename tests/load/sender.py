"""A sender under load, an OS process of its own: for each line of its input a hot process, and all messages to it.

Arguments: the URL and a JSON object: how many ``messages``, or ``calls`` to a machine. It prints each process that has
heard them all; at the end of its input it stops, so it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import json
import sys

from perdure.engine import Engine
from tests.load.loud import CALLED_A_SECOND, SENT_A_SECOND, called, sent
from tests.load.pool import LIMIT, orders
from tests.load.program import Counter, hot


async def main(url: str, messages: int = 0, calls: int = 0) -> None:
    """Send, or call, until the input ends."""
    said = await orders()
    async with Engine(url, migrate=True) as engine:
        print("ready", flush=True)
        while await said.readline():
            if calls:
                handle = await engine.start(Counter.begin)
                await called(handle, calls, CALLED_A_SECOND)
            else:
                handle = await engine.start(hot, messages)
                await sent(handle, messages, SENT_A_SECOND)
            await handle.result(LIMIT)
            print("heard", handle.id, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], **json.loads(sys.argv[2])))
