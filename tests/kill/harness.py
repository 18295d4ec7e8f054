"""The scene of a kill: victims started as real OS processes, the ledger of what they did, and what must hold after."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from perdure.engine import Engine
from perdure.kernel.child import queue_kind
from perdure.kernel.event import EventType
from perdure.kernel.process import Process
from perdure.kernel.soundness import unsound
from perdure.store.base import Search
from tests.kill.victim import Victim, victim

LIMIT = 100.0
"""Seconds after which a test has failed; nothing waits for this long when all is well."""
WHOLE = os.environ.get("PERDURE_KILL") == "all"
"""Whether workers are killed at every point, as ``make kill`` does."""
Point = TypeVar("Point")


def points(every: Sequence[Point], *few: Point) -> Sequence[Point]:
    """Where to kill: at ``few`` of these points, which differ in kind, and at every one in the long form."""
    assert set(few) < set(every)
    return every if WHOLE else few


class Harness:
    """One database, one ledger, and the victims working there."""

    def __init__(self, url: str, folder: Path, *, quiet: bool = False) -> None:
        self.url = url
        self._errors = folder / "workers.log" if quiet else None
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.workers: list[Victim] = []

    async def start_worker(self, **orders: Any) -> Victim:
        """Start a victim; its orders are those of ``workload.main``."""
        return await self.start("tests.kill.workload", self.url, json.dumps(orders), str(self.ledger))

    async def start(self, module: str, *arguments: str) -> Victim:
        """Start an OS process that runs a module with these arguments."""
        with open(self._errors or os.devnull, "a") as errors:
            child = await victim(module, *arguments, errors=errors.fileno() if self._errors else None)
        self.workers.append(child)
        return child

    async def end(self) -> None:
        """Kill what still runs, and wait for it."""
        for child in self.workers:
            await child.close()

    def effects(self) -> Counter[tuple[str, str]]:
        """How often each (effect, idempotency key) was written down."""
        lines = self.ledger.read_text().splitlines()
        return Counter((line.split()[0], line.split()[1]) for line in lines)


async def said(child: Victim, word: str) -> str:
    """Read what a victim prints until a line begins with ``word``; the rest of that line."""
    assert child.stdout is not None
    async with asyncio.timeout(LIMIT):
        async for raw in child.stdout:
            first, _, rest = raw.decode().strip().partition(" ")
            if first == word:
                return rest
    raise AssertionError(f"the victim ended (code {child.returncode}) and never said {word!r}")


async def _all(engine: Engine, search: Search) -> list[Process]:
    rows: list[Process] = []
    while found := await engine.store.search(replace(search, limit=1000, before_id=rows[-1].id if rows else None)):
        rows += found
    return rows


async def laws_hold(engine: Engine, *queues: str) -> list[Process]:
    """Check every process, and the tasks of ``queues``, by the soundness module; no step is recorded twice in a run."""
    rows = [row for kind in (None, *map(queue_kind, queues)) for row in await _all(engine, Search(kind=kind))]
    now = await engine.store.now()
    for row in rows:
        events = await engine.store.history(row.id, row.run, limit=row.events or 1)
        messages = await engine.store.messages([(row.id, 0)])
        found = unsound(row, events, messages, now)
        assert found == [], (found, row, events)
        recorded = Counter((e.name, e.place) for e in events if e.type is EventType.STEP_COMPLETED)
        assert not recorded or max(recorded.values()) == 1
    return rows
