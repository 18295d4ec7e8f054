"""Processes with reply addresses, and one that receives their notices."""

from __future__ import annotations

import asyncio

from perdure import Notice, continue_as_new, receive, set_attributes, set_state, step, workflow
from perdure.errors import Permanent

unwell = [False]
"""Whether the step of ``troubled`` fails."""


@workflow(name="listener")
async def listener() -> list[tuple[str, str]]:
    """Note what is told, until a signal ends it: by the key of each process, and by the status."""
    told: list[tuple[str, str]] = []
    ended = asyncio.create_task(receive("end"))
    while not ended.done():
        notice = asyncio.create_task(receive("notice", Notice))
        await asyncio.wait([notice, ended], return_when=asyncio.FIRST_COMPLETED)
        if notice.done():
            told.append((notice.result().key or "", notice.result().status))
            set_state(told)
        else:
            notice.cancel()
    return told


@workflow(name="gatherer")
async def gatherer(count: int) -> list[Notice]:
    """Wait for so many notices, and give them."""
    return [await receive("notice", Notice) for _ in range(count)]


@step(name="trouble")
async def trouble() -> str:
    if unwell[0]:
        raise Permanent("the till is empty")
    return "well"


@workflow(name="troubled")
async def troubled(ends: bool = True) -> str:
    """It fails with its step, or waits for a signal first."""
    if not ends:
        await receive("go")
    return await trouble()


@workflow(name="patient")
async def patient() -> str:
    """It waits to be told something."""
    return str(await receive("go", str))


@workflow(name="renewed")
async def renewed(left: int) -> int:
    """It continues as new some times, and changes its attributes."""
    set_attributes(left=left)
    if left:
        continue_as_new(left - 1)
    return left
