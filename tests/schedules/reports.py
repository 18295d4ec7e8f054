"""Workflows that schedules start in tests, and a ledger of what they have done."""

from __future__ import annotations

from asyncio import Event
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
async def failing_report() -> None:
    await noted("failing", "")
    raise ValueError("the printer is on fire")
