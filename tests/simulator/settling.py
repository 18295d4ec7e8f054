"""Settling: what people do when a storm is over, until every process has come to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from perdure.engine import Engine
from perdure.errors import IllegalMove
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.store.base import Search
from tests.simulator.ledger import Ledger
from tests.simulator.person import Case, Reach, answered

OPEN = (Status.RUNNING, Status.HELD, Status.BROKEN)
LOOK_SECONDS = 1.0
STANDSTILL_SECONDS = 600.0
"""Without faults something must change in every so many seconds as long as a process is unfinished."""
MENDS = 4
"""How often what is broken is retried; what people have set wrongly by hand is begun again after that."""


class Standstill(Exception):
    """Unfinished processes did not move any more, or broke again and again, although nothing disturbed them."""


class Settling:
    """Lets every process come to its end: resumes what is held, mends and retries what is broken, waits.

    ``look`` is shown whatever is broken or held; it says which person's process that is, or descends from, if it knows.
    """

    def __init__(
        self,
        cases: list[Case],
        reach: Reach,
        ledger: Ledger,
        kinds: tuple[str, ...],
        look: Callable[[Process], bytes | None] = lambda row: None,
    ) -> None:
        self.cases = cases
        self.reach = reach
        self.ledger = ledger
        self.kinds = kinds
        self.look = look
        self._tries: dict[bytes, int] = {}

    async def settle(self) -> None:
        """Raise Standstill if they do not come to an end while there is progress."""
        known: object = None
        since = 0.0
        time = asyncio.get_running_loop().time
        while rows := await self.reach(self._unfinished):
            now = {row.id: (row.version, row.run) for row in rows}
            if now != known:
                known, since = now, time()
            elif time() - since > STANDSTILL_SECONDS:
                raise Standstill(await self.reach(lambda engine: told(engine, rows)))
            for row in rows:
                if row.status is not Status.RUNNING:
                    await self._free(row)
            await asyncio.sleep(LOOK_SECONDS)

    async def _unfinished(self, engine: Engine) -> list[Process]:
        searches = [Search(kind=kind, statuses=OPEN, limit=1000) for kind in self.kinds]
        return [row for search in searches for row in await engine.store.search(search)]

    async def _free(self, row: Process) -> None:
        by, family = {"who": "Ann", "why": "the trouble is over"}, self.look(row)
        try:
            if row.status is Status.HELD:
                await answered(self.reach(lambda engine: engine.process(row.id).resume(**by)))
                return
            tries = self._tries[row.id] = self._tries.get(row.id, 0) + 1
            self.ledger.mended.add(id_text(row.id))
            for case in self.cases:  # what was mended may go well from now on
                case.facts.mended |= family in (None, case.id_bytes)
            if tries <= MENDS:
                await answered(self.reach(lambda engine: engine.process(row.id).retry(**by)))
            elif tries <= 2 * MENDS and any(case.facts.by_hand or case.facts.old for case in self.cases):
                await answered(self.reach(lambda engine: engine.process(row.id).restart(**by)))
            else:
                raise Standstill(await self.reach(lambda engine: told(engine, [row])))
        except IllegalMove:
            pass  # somebody was quicker


async def told(engine: Engine, rows: list[Process]) -> str:
    """What the engine says of processes."""
    lines = [
        f"{row.kind} {row.key or id_text(row.id)}: {await engine.process(row.id).status()!r:.800}" for row in rows[:5]
    ]
    return "\n".join(lines)
