"""A firm pays wages by steps that move money and record their results in one transaction; then its worker is killed.

Run it with ``python -m examples.wages``. It needs nothing but a folder.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import tempfile

from perdure import Engine, attempt, step, workflow

PEOPLE = ["Ann", "Bob", "Cid"]
deadly = ""
"""In the middle of whose payment this worker dies."""


@step(transaction=True)
def move(giver: str, taker: str, euros: int) -> int:
    """Move money; the answer is what the giver has left. All of it is there, with its result, or nothing."""
    bank = attempt().connection
    bank.execute("UPDATE account SET euros = euros - ? WHERE name = ?", (euros, giver))
    if taker == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    bank.execute("UPDATE account SET euros = euros + ? WHERE name = ?", (euros, taker))
    (left,) = bank.execute("SELECT euros FROM account WHERE name = ?", (giver,)).fetchone()
    return int(left)


@workflow
async def wages(people: list[str], euros: int) -> list[int]:
    """Pay everybody; the answer is what the firm has left after each of them."""
    return [await move("firm", person, euros) for person in people]


def shown(bank: sqlite3.Connection) -> str:
    """Who has how much."""
    rows = bank.execute("SELECT name, euros FROM account ORDER BY rowid")
    return ", ".join(f"{name} {euros}" for name, euros in rows)


async def dying_worker(path: str) -> None:
    """Pay Ann; be killed in the middle of paying Bob."""
    global deadly
    deadly = "Bob"
    async with Engine(f"sqlite:///{path}", work=True, workflows=[wages]) as engine:
        await (await engine.start(wages.options(key="May"), PEOPLE, 100)).result()


async def main(path: str) -> None:
    """Let a worker be killed, see what is there, and go on."""
    async with Engine(f"sqlite:///{path}", migrate=True):
        bank = sqlite3.connect(path)
        with bank:
            bank.execute("CREATE TABLE account (name TEXT PRIMARY KEY, euros INT)")
            bank.executemany("INSERT INTO account VALUES (?, ?)", [("firm", 300), *((name, 0) for name in PEOPLE)])
    child = await asyncio.create_subprocess_exec(sys.executable, "-m", "examples.wages", path)
    assert await child.wait() == -signal.SIGKILL
    print("killed while Bob was paid:", shown(bank))
    async with Engine(f"sqlite:///{path}", work=True, workflows=[wages]) as engine:
        handle = await engine.start(wages.options(key="May"), PEOPLE, 100)
        print("the firm has had left:", await handle.result(timeout=30))
        print("everybody is paid once:", shown(bank))
    bank.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(dying_worker(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(f"{folder}/wages.db"))
