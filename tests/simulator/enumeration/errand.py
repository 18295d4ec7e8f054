"""An errand that people order about: hold, resume, restart from a step, and a cancel with a deadline that runs out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from perdure import Status, receive, step, workflow
from perdure.authoring.registry import Registry
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import ProcessCancelled
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process
from tests.simulator.enumeration.plot import Ending, Plot, deed

LOOK_SECONDS = 0.3


@step
async def draft(text: str) -> str:
    return str(deed("drafted", f"draft of {text}"))


@step
async def edit(text: str) -> str:
    return str(deed("edited", f"{text}, edited"))


@workflow
async def errand(text: str) -> str:
    await edit(await draft(text))
    try:
        return await receive("approved", str)
    finally:
        await asyncio.sleep(3600)  # its deadline cuts this short


async def clerk(engine: Engine) -> object:
    """Order what has not been ordered yet: whoever begins again looks first at how far he had come."""
    handle = await engine.start(errand.options(key="E-1"), "E-1")
    await _until(engine, handle, _edited)
    run, events = await _now(engine, handle)
    if run.run == 1:
        if not any(event.type is EventType.HELD for event in events):
            await handle.hold(who="Ann", why="lunch")
        if (await engine.row(handle.id)).status is Status.HELD:
            await handle.resume(who="Ann", why="back again")
        await handle.restart_from("edit", who="Ann", why="a slip of the pen")
        await _until(engine, handle, _edited)
    if (await engine.row(handle.id)).inbox == 0:
        await handle.cancel(deadline=1, who="Ann", why="never mind")
    try:
        return await handle.result()
    except ProcessCancelled as cancelled:
        return cancelled.type


async def _now(engine: Engine, handle: Handle[str]) -> tuple[Process, list[Event]]:
    row = await engine.row(handle.id)
    return row, await engine.store.history(row.id, row.run)


async def _until(engine: Engine, handle: Handle[str], reached: Callable[[Process, list[Event]], bool]) -> None:
    while not reached(*await _now(engine, handle)):
        await asyncio.sleep(LOOK_SECONDS)


def _edited(row: Process, events: list[Event]) -> bool:
    return any(event.type is EventType.STEP_COMPLETED and event.name == "edit" for event in events)


ERRAND = Plot(
    name="errand",
    client=clerk,
    answer="Terminated",
    workers=(lambda: Registry(errand), lambda: Registry(errand)),
    endings=[Ending("errand", Status.CANCELLED, run=2, steps=("draft", "edit"))],
    deeds={"drafted": 1, "edited": 2},
    seconds=10,
)
