"""Transfers that run at most once, hosted by workers that are killed in the middle of them."""

from __future__ import annotations

import asyncio

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from tests.kill.workload import effect, gate


@step(at_most_once=True)
async def wire(name: str) -> str:
    effect(f"wire-{name}")
    while not gate().exists():
        await asyncio.sleep(0.01)
    return f"{name} wired"


@step(at_most_once=True)
def wire_in_a_thread(name: str) -> str:
    effect(f"wire-{name}")
    return f"{name} wired"


@step(at_most_once=True, queue="bank")
async def wire_there(name: str) -> str:
    effect(f"wire-{name}")
    while not gate().exists():
        await asyncio.sleep(0.01)
    return f"{name} wired"


@workflow
async def wages(name: str) -> str:
    return await wire(name)


@workflow
async def quick_wages(name: str) -> str:
    return await wire_in_a_thread(name)


@workflow
async def wages_there(name: str) -> str:
    return await wire_there(name)


FLOWS = [wages, quick_wages]
CLERKS = [wages_there]
BANK = [wire_there]
