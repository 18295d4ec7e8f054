"""A visit: a child of the other of two workers, its result, and a value that the parent publishes."""

from __future__ import annotations

from perdure import Status, publish, step, workflow
from perdure.authoring.registry import Registry
from perdure.engine import Engine
from tests.simulator.enumeration.plot import Ending, Plot, deed
from tests.simulator.enumeration.point import KILLS

ANSWER = "Olha is in, and was visited"


@step
async def ring(name: str) -> str:
    return str(deed("rang", f"{name} is in"))


@workflow
async def guest(name: str) -> str:
    return await ring(name)


@workflow
async def visit(name: str) -> str:
    publish("said", "hello")
    answer = await guest.child(name)
    publish("said", answer)
    return f"{answer}, and was visited"


async def follower(engine: Engine) -> object:
    handle = await engine.start(visit.options(key="Olha"), "Olha")
    said = [value async for value in handle.values("said", str)]
    return [said, await handle.result()]


VISIT = Plot(
    name="visit",
    client=follower,
    answer=[["hello", "Olha is in"], ANSWER],
    workers=(lambda: Registry(visit), lambda: Registry(guest)),
    endings=[
        Ending("guest", Status.COMPLETED, "Olha is in", steps=("ring",)),
        Ending("visit", Status.COMPLETED, ANSWER, steps=("guest",)),
    ],
    deeds={"rang": 1},
    seconds=10,
    pairs=KILLS,
)
