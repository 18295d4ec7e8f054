"""A till writes sales into its own table and starts their bills in the same transaction; then it is killed in one.

Run it with ``python -m examples.till``. It needs nothing but a folder.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import tempfile

from perdure import Engine, step, workflow


@step
async def write_bill(sale: str) -> str:
    """Write the bill of a sale."""
    return f"a bill for {sale}"


@workflow
async def bill(sale: str) -> str:
    """Bill one sale."""
    return await write_bill(sale)


def sell(engine: Engine, till: sqlite3.Connection, sale: str) -> None:
    """Note a sale and start its bill: both with the caller's commit, or neither."""
    till.execute("INSERT INTO sale VALUES (?)", (sale,))
    engine.within(till).start(bill.options(key=sale), sale)


async def dying_till(path: str) -> None:
    """Sell a book; sell a lamp, and be killed before that is committed."""
    async with Engine(f"sqlite:///{path}") as engine:
        till = sqlite3.connect(path)
        with till:
            sell(engine, till, "a book")
        sell(engine, till, "a lamp")
        os.kill(os.getpid(), signal.SIGKILL)


async def main(path: str) -> None:
    """Let a till be killed, then see what is there."""
    async with Engine(f"sqlite:///{path}", work=True, workflows=[bill]) as engine:
        till = sqlite3.connect(path)
        till.execute("CREATE TABLE sale (name TEXT PRIMARY KEY)")
        child = await asyncio.create_subprocess_exec(sys.executable, "-m", "examples.till", path)
        assert await child.wait() == -signal.SIGKILL
        print("sold:", ", ".join(name for (name,) in till.execute("SELECT name FROM sale")))
        print("billed:", await (await engine.handle(bill, "a book")).result(timeout=30))
        print("processes:", sum((await engine.count())["bill"].values()))
        with till:
            sell(engine, till, "a lamp")
        till.close()
        print("sold again:", await (await engine.handle(bill, "a lamp")).result(timeout=30))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(dying_till(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(f"{folder}/till.db"))
