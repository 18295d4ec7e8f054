"""A worker that kills or stops itself at a chosen call of a chosen door of its store; run as an OS process of its own.

Arguments: the URL, a JSON object with what to do (see :class:`KillPoint`), and the path of the ledger of effects.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from perdure.authoring.start import NamedWorkflow
from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import workflow
from perdure.clock import Computer
from perdure.engine import Engine
from perdure.kernel.retry import Retry
from perdure.runtime.options import WorkerOptions
from perdure.store.url import store_for
from perdure.testing.faults import FaultyStore

LEDGER = "PERDURE_TEST_LEDGER"
POINT = "PERDURE_TEST_POINT"
WRITES = ("start", "send", "claim", "commit", "enlist", "beat", "retire", "prune")


def effect(what: str) -> None:
    """Write down that a side effect happened, so that a kill right after it cannot hide it."""
    with open(os.environ[LEDGER], "a") as ledger:
        ledger.write(f"{what} {attempt().idempotency_key} {os.getpid()}\n")
        ledger.flush()
        os.fsync(ledger.fileno())


def gate() -> Path:
    """The file that lets go of the steps that are held."""
    return Path(os.environ[LEDGER]).with_name("gate")


@step(retry=Retry.NONE)
async def mark(n: int) -> int:
    effect(f"mark{n}")
    return n


@workflow
async def three_steps() -> int:
    return await mark(1) + await mark(2) + await mark(3)


@step(retry=Retry.NONE)
async def pause(n: int) -> int:
    effect(f"pause{n}")
    await asyncio.sleep(0.02)
    return n


@workflow
async def five_pauses(n: int) -> int:
    total = 0
    for _ in range(5):
        total += await pause(n)
    return total


@step(retry=Retry.NONE)
async def hold(n: int) -> int:
    effect(f"hold{n}")
    while not gate().exists():
        await asyncio.sleep(0.01)
    return n


@workflow
async def held(n: int) -> int:
    return await hold(n) + await pause(n)


@step(retry=Retry.NONE)
async def poise() -> None:
    effect("poised")
    while not gate().exists():
        await asyncio.sleep(0.001)
    effect("acted")


@workflow
async def poised() -> None:
    await poise()


@step(retry=Retry.NONE)
async def deadly() -> None:
    effect("deadly")
    os.kill(os.getpid(), signal.SIGKILL)


@workflow
async def poison() -> None:
    await deadly()


class KillPoint:
    """Sends this OS process a signal at the n-th call of a door, before or after it was done."""

    def __init__(self, door: str, call: int, side: str, signal: int) -> None:
        self.door = door
        self.call = call
        self.side = side
        self.signal = signal
        self.calls = 0
        self.writing = 0

    def upon(self, store: FaultyStore) -> None:
        """Install it on a store."""
        store.before, store.after = self._before, self._after

    async def _before(self, name: str, argument: Any) -> None:
        if self.side == "before":
            await self._visit(name)
        self.writing += name in WRITES

    async def _after(self, name: str, argument: Any) -> None:
        self.writing -= name in WRITES
        if self.side == "after":
            await self._visit(name)

    async def _visit(self, name: str) -> None:
        if name != self.door:
            return
        self.calls += 1
        if self.calls == self.call:
            while self.signal == signal.SIGSTOP and self.writing:
                await asyncio.sleep(
                    0
                )  # SQLite has one writer: stopped in the middle of a beat, it would stop everybody
            os.kill(os.getpid(), self.signal)


async def main(url: str, orders: dict[str, Any]) -> None:
    """Work until the process that we start is done, or until doom comes."""
    if "point" in orders:
        os.environ[POINT] = orders["point"]
    machine = Computer()
    store = FaultyStore(store_for(url, machine))
    if "kill_point" in orders:
        KillPoint(**orders["kill_point"]).upon(store)
    options = WorkerOptions(**orders.get("options", {}))
    hosted = orders.get("only", [three_steps, five_pauses, held, poised, poison, *orders.get("modules", [])])
    async with Engine(url, store=store, machine=machine, work=True, workflows=hosted, options=options) as engine:
        if "call" in orders:
            id, name, value, key = orders["call"]
            print("answer", json.dumps(await engine.process(id).call(name, value, key=key)), flush=True)
        elif orders.get("start"):
            first = tuple(orders["signal"]) if "signal" in orders else None
            args = orders.get("args", [])
            handle = await engine.start(
                NamedWorkflow(orders["start"]).options(key=orders.get("key"), signal=first), *args
            )
            print("started", handle.id, flush=True)
            try:
                print("result", await handle.result(orders.get("timeout", 30)), flush=True)
            except Exception as error:
                print("error", type(error).__name__, flush=True)
        else:
            print("ready", flush=True)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, engine.stop_soon)
            await engine.run()
    print("metrics", json.dumps(engine.metrics()), flush=True)


if __name__ == "__main__":
    os.environ[LEDGER] = str(Path(sys.argv[3]))
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
