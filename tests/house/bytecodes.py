"""Counts the bytecodes of a process with one step and of one with three, each from its start to its result.

So it does of steps that are given a number, and of those that are given an object with others in it; and of the first
of these once more, with metrics.

The database is written by the event loop itself: with a thread of its own, what else the machine does would decide how
many records are in a batch, and so what each of them costs. Nothing but this program is traced, and with one thread:
``python -m tests.house.bytecodes``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar

from msgspec import Struct
from prometheus_client import CollectorRegistry

from perdure import Engine, WorkerOptions, limits, step, workflow
from perdure.authoring.workflow import Workflow
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.store import SqliteStore
from perdure.store.sqlite.thread import DatabaseThread
from tests.house.tree import PACKAGE

PROCESSES = 100
HOUR_SECONDS = 3600.0
PATIENT = WorkerOptions(lease_seconds=HOUR_SECONDS, beat_seconds=1000)
"""Traced as it is, on a busy machine, the worker would lose leases of ordinary length, and take its loop for hung."""
T = TypeVar("T")


@step
async def effect(n: int) -> int:
    return n + 1


@workflow
async def one_step(n: int) -> int:
    return await effect(n)


@workflow
async def three_steps(n: int) -> int:
    for _ in range(3):
        n = await effect(n)
    return n


class Item(Struct):
    sku: str
    count: int


@dataclass
class Basket:
    items: list[Item]
    note: str | None = None


BASKET = Basket([Item("A", 1), Item("B", 2)])


@step
async def pack(basket: Basket) -> Basket:
    return basket


@workflow
async def one_basket(n: int) -> int:
    return len((await pack(BASKET)).items) + n


@workflow
async def three_baskets(n: int) -> int:
    basket = BASKET
    for _ in range(3):
        basket = await pack(basket)
    return len(basket.items) + n


class CalmLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still on demand: nothing that is done at intervals is counted then."""

    stands: float | None = None

    def time(self) -> float:
        return super().time() if self.stands is None else self.stands


class NoThread(DatabaseThread):
    """Does the work where it is asked for, once all that is ready has had its turn."""

    async def run(self, work: Callable[[Connection], T], *, urgent: bool = False, write: bool = True) -> T:
        await asyncio.sleep(0)
        return self._do(work)

    async def close(self) -> None:
        self.is_open = False
        self._discard()


@dataclass
class Count:
    """How many bytecodes of the package have run."""

    bytecodes: int = 0


@contextmanager
def counted() -> Iterator[Count]:
    """Count what runs meanwhile."""
    count, home = Count(), str(PACKAGE)

    def each(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode":  # no more than this: it is done more than a million times
            count.bytecodes += 1
        return each

    def every(frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(home):
            return None
        frame.f_trace, frame.f_trace_lines, frame.f_trace_opcodes = each, False, True
        return each

    sys._getframe().f_trace_opcodes = True  # Python 3.12 traces bytecodes only if some frame has asked before
    sys.settrace(every)
    try:
        yield count
    finally:
        sys.settrace(None)


async def bytecodes(flow: Workflow[..., int], metrics: CollectorRegistry | None = None) -> float:
    """Bytecodes of one process, of so many that are started at once on a fresh store, once the engine is warm."""
    store = SqliteStore("sqlite://:memory:", thread=NoThread)
    async with Engine(store.url, store=store, work=True, workflows=[flow], options=PATIENT, metrics=metrics) as engine:

        async def process(n: int) -> int:
            return await (await engine.start(flow, n)).result()

        await asyncio.gather(*map(process, range(PROCESSES)))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CalmLoop)
        loop.stands = loop.time()
        with counted() as count:
            await asyncio.gather(*map(process, range(PROCESSES)))
        loop.stands = None
        return count.bytecodes / PROCESSES


async def main() -> None:
    """Print the counts as JSON."""
    limits.BLOCKED_LOOP_SECONDS = HOUR_SECONDS  # so is a traced loop: what is said of it would be counted too
    one, three = await bytecodes(one_step), await bytecodes(three_steps)
    first, all = await bytecodes(one_basket), await bytecodes(three_baskets)
    measured = await bytecodes(one_step, CollectorRegistry())
    counts = {"step": (three - one) / 2, "process": one, "step with an object": (all - first) / 2}
    print(json.dumps(counts | {"process with metrics": measured}))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=CalmLoop) as runner:
        runner.run(main())
