"""Orders are charged and sent while the bank goes down, a worker is killed, and a carrier refuses some parcels.

The parts of the pattern *Scheduler, Agent, Supervisor* are here: the workflow schedules, its steps are the agents, and
the engine supervises them. A breaker spares the bank while it is down, and what cannot be sent is paid back. Run it
with ``python -m examples.dispatch``. It needs nothing but a folder, or the URL of a PostgreSQL database.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import tempfile
from contextlib import closing

from examples.workers import Workers
from perdure import Breaker, Engine, Permanent, Retry, attempt, step, workflow
from perdure.errors import ProcessFailed

ORDERS = 40
REFUSED = 4
bank = Breaker("bank", failures=3, open_for=2, factor=1)


class World:
    """The bank and the carrier, as one file: who was charged and what was sent, each by the key of the step."""

    def __init__(self, path: str) -> None:
        self.path = path

    def do(self, sql: str, *values: str) -> list[tuple[int]]:
        """Run one statement."""
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as file:
            return file.execute(sql, values).fetchall()

    def count(self, sql: str) -> int:
        """The first number of the answer."""
        return self.do(sql)[0][0]


world = World(os.environ.get("WORLD", ""))


@step
async def pay_back(order: str, cents: int) -> None:
    """Undo a charge, by the key under which it was made; if there is none, all is well."""
    world.do("DELETE FROM charged WHERE key = ?", attempt().undoes or "")


@step(undo=pay_back, breaker=bank, retry=Retry(attempts=9, first=0.05))
async def charge(order: str, cents: int) -> str:
    """Charge a card, once, however often it is asked for."""
    world.do("INSERT INTO called VALUES (?)", order)
    if world.count("SELECT count(*) FROM down"):
        raise ConnectionError("the bank does not answer")
    world.do("INSERT OR IGNORE INTO charged VALUES (?)", attempt().idempotency_key)
    return f"receipt {order}"


@step(retry=Retry(attempts=2, first=0.05))
async def send(order: str) -> str:
    """Hand a parcel over to the carrier, who takes no glass."""
    if order.startswith("glass"):
        raise Permanent("the carrier takes no glass")
    world.do("INSERT OR IGNORE INTO sent VALUES (?)", attempt().idempotency_key)
    return f"parcel {order}"


@workflow
async def dispatch(order: str, cents: int) -> str:
    """Charge and send; if it cannot be sent, the charge is undone."""
    receipt = await charge(order, cents)
    return f"{await send(order)}, {receipt}"


async def main(url: str, path: str) -> None:
    """Take orders while the bank is down, kill a worker, let the bank come back, and look at the books."""
    world.path = path
    for table in ("called", "charged", "sent", "down"):
        world.do(f"CREATE TABLE {table} (key TEXT PRIMARY KEY)" if table != "called" else "CREATE TABLE called (key)")
    world.do("INSERT INTO down VALUES (?)", "yes")
    workers = Workers("examples.dispatch", url, WORLD=path)
    async with Engine(url, migrate=True) as engine:
        try:
            for _ in range(2):
                await workers.add()
            names = [f"glass {n}" if n < REFUSED else f"book {n}" for n in range(ORDERS)]
            orders = [await engine.start(dispatch.options(key=name), name, 1299) for name in names]
            while (await engine.breakers.state("bank")).state != "open":  # noqa: ASYNC110 (as a person looks)
                await asyncio.sleep(0.05)
            print("the bank is down: its breaker is open, for all workers")
            await workers.kill_one()
            calls = world.count("SELECT count(*) FROM called")
            print(f"{ORDERS} orders, of up to 9 attempts each, have called it less than 100 times: {calls < 100}")
            world.do("DELETE FROM down")
            ends = await engine.results(orders, timeout=120, return_exceptions=True)
            refused = [end for end in ends if isinstance(end, ProcessFailed)]
            print(f"{sum(isinstance(end, str) for end in ends)} orders were sent, {len(refused)} were refused:")
            print(f"  {refused[0].detail}")
            charged, sent = (world.count(f"SELECT count(*) FROM {table}") for table in ("charged", "sent"))  # noqa: S608
            print(f"charged: {charged}, sent: {sent}")
            print("the breaker is", (await engine.breakers.state("bank")).state)
        finally:
            await workers.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/orders.db", f"{folder}/world.db"))
