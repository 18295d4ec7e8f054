"""Workflows that schedules start in tests, and a ledger of what they have done."""

from __future__ import annotations

from asyncio import Event, sleep
from collections import defaultdict
from datetime import datetime

from perdure import receive, step, workflow

done: list[tuple[str, str]] = []
"""Who was started, and for which instant."""
gates: defaultdict[str, Event] = defaultdict(Event)


@step(name="noted")
async def noted(who: str, at: str) -> None:
    done.append((who, at))


@workflow(name="report")
async def report(who: str, scheduled_at: datetime | None = None) -> str:
    await noted(who, scheduled_at.isoformat() if scheduled_at else "")
    return who


@workflow(name="long report")
async def long_report(who: str, *, scheduled_at: datetime | None = None) -> str:
    """It ends when it is told so."""
    await noted(who, scheduled_at.isoformat() if scheduled_at else "")
    return str(await receive("end", str))


@workflow(name="failing report")
async def failing_report(well: int = 0, scheduled_at: datetime | None = None) -> None:
    """It fails but for one hour of the day."""
    await noted("failing", "")
    if scheduled_at is not None and scheduled_at.hour != well:
        raise ValueError("the printer is on fire")


@workflow(name="slow report")
async def slow_report(well: int, scheduled_at: datetime | None = None) -> None:
    """It takes two hours and a half; before that hour of the first day it fails."""
    await sleep(9000)
    if scheduled_at is not None and (scheduled_at.day, scheduled_at.hour) < (2, well):
        raise ValueError("the printer is on fire")
