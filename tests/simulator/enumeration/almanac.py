"""An almanac, which a schedule prints: one issue comes round, two are made up for, and then the schedule is ended."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

from perdure import Handle, Schedule, Status, step, workflow
from perdure.authoring.registry import Registry
from perdure.authoring.schedule.definition import moment
from perdure.authoring.schedule.machine import KIND
from perdure.authoring.schedule.occurrences import key_of
from perdure.clock import SECOND
from perdure.engine import Engine
from perdure.errors import ProcessNotFound
from perdure.store.base import Search
from perdure.testing.clock import NOON
from tests.simulator.enumeration.plot import Ending, Plot, deed

HOUR = 3600 * SECOND
DUE = NOON + 6 * SECOND
EDITION = Schedule(every=timedelta(hours=1), offset=DUE % HOUR / SECOND, overlap="allow")
KEYS = [key_of("almanac", DUE - hours * HOUR) for hours in (2, 1, 0)]


@step
async def printed() -> str:
    return str(deed("printed", "printed"))


@workflow
async def edition() -> str:
    return await printed()


async def issue(engine: Engine, key: str) -> Handle[str]:
    """The process of an issue, once it was started."""
    while True:
        with suppress(ProcessNotFound):
            return await engine.handle(edition, key)
        await asyncio.sleep(0.2)


async def editor(engine: Engine) -> object:
    """Whoever begins again puts the same schedule and asks for the same issues, unless the schedule has ended."""
    if not await over(engine):
        handle = await engine.schedules.put("almanac", EDITION, edition)
        await handle.backfill(moment(DUE - 2 * HOUR), moment(DUE - HOUR))
    told = [await (await issue(engine, key)).result() for key in KEYS]
    if not await over(engine):
        await (await engine.handle(KIND, "almanac")).terminate()
    return told


async def over(engine: Engine) -> bool:
    """Whether the schedule was ended by this program when it ran before."""
    found = await engine.list(Search(kind=KIND))
    return any(view.status is Status.CANCELLED for view in found)


PRINTED = Ending("edition", Status.COMPLETED, "printed", steps=("printed",))
ALMANAC = Plot(
    name="almanac",
    client=editor,
    answer=["printed"] * 3,
    workers=(lambda: Registry(edition), lambda: Registry(edition)),
    endings=[PRINTED, PRINTED, PRINTED, Ending(KIND, Status.CANCELLED, steps=None)],
    deeds={"printed": 3},
    seconds=20,
)
