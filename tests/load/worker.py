"""A worker under load, an OS process of its own: opens engines, counts what they ask of the store, obeys on its input.

Arguments: the URL and a JSON object: ``engines`` (how many, default 1), ``options``, ``wait`` (open only at a "go").
It understands "figures", which it prints as JSON; at the end of its input it stops, so it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter, deque
from contextlib import AsyncExitStack
from typing import Any

from perdure.clock import Computer
from perdure.engine import Engine
from perdure.runtime.options import WorkerOptions
from perdure.store.url import store_for
from perdure.testing.faults import FaultyStore
from tests.load.allocated import allocated
from tests.load.pool import orders
from tests.load.program import HOSTED

asked: Counter[str] = Counter()
by_second: Counter[int] = Counter()
SECONDS_KEPT = 600


async def count(door: str, argument: Any) -> None:
    """Count a call to the store, by its door and by the second of the machine's monotonic clock, of the last ones."""
    asked[door] += 1
    by_second[int(time.monotonic())] += 1
    if len(by_second) > SECONDS_KEPT:
        del by_second[next(iter(by_second))]


def engine(url: str, options: WorkerOptions) -> Engine:
    machine = Computer()
    store = FaultyStore(store_for(url, machine))
    store.calls = deque(maxlen=0)  # type: ignore[assignment]  # they are only counted
    store.before = count
    return Engine(url, store=store, machine=machine, work=True, workflows=HOSTED, queues=["load"], options=options)


def figures(engines: list[Engine]) -> dict[str, Any]:
    total: Counter[str] = Counter()
    for one in engines:
        total.update(one.metrics())
    return {"metrics": total, "asked": asked, "by_second": by_second, "allocated": allocated()}


async def main(url: str, wanted: dict[str, Any]) -> None:
    """Work until the input ends."""
    said = await orders()
    if wanted.get("wait"):
        print("here", flush=True)
        await said.readline()
    options = WorkerOptions(**wanted.get("options", {}))
    engines = [engine(url, options) for _ in range(wanted.get("engines", 1))]
    async with AsyncExitStack() as open:
        await asyncio.gather(*(open.enter_async_context(one) for one in engines))
        print("ready", os.getpid(), flush=True)
        while await said.readline():
            print("figures", json.dumps(figures(engines)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
