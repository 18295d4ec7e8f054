"""A program that is killed at a chosen point of its own transaction; run as an OS process of its own.

Arguments: the URL, and the point: ``before`` its COMMIT, or right ``after`` it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from perdure.engine import Engine
from tests.transactions.caller import by_asyncpg, by_sqlite3_immediate, done
from tests.transactions.shop import bill, greet


async def main(url: str, point: str) -> None:
    """Sell number 7: write it down, start its bill, tell the greeter; then die."""
    call = by_sqlite3_immediate if url.startswith("sqlite:") else by_asyncpg
    async with Engine(url, migrate=True) as engine, call(url) as caller:
        inside = engine.within(caller.connection)
        await caller.run("INSERT INTO sale VALUES (7)")
        await done(inside.start(bill.options(key="sale/7"), 7))
        await done(inside.signal((await engine.handle(greet, "greeter")).id, "name", "Ann"))
        if point == "after":
            await caller.end(commit=True)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
