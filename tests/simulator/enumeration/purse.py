"""A purse, which is a machine: calls, one of them refused, a method that breaks it and a repair, a timer, its end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from perdure import Handle, Status, machine, step
from perdure.authoring.registry import Registry
from perdure.engine import Engine
from perdure.errors import CallRefused, IllegalMove
from tests.simulator.enumeration.plot import Ending, Plot, deed


@step
async def weigh(coins: int) -> int:
    return int(deed("weighed", coins))


@step
async def report(what: str) -> str:
    return str(deed(what, what))


class Purse(machine.Machine):
    """So many coins, and what has happened to them."""

    coins: int = 0
    told: list[str] = machine.field(default_factory=list)

    @machine.init
    async def sewn(self, coins: int) -> None:
        self.coins = await weigh(coins)

    @machine.call
    async def put(self, coins: int) -> int:
        """Put in, weighed."""
        self.coins += await weigh(coins)
        self.told.append(f"+{coins}")
        return self.coins

    @machine.call
    async def take(self, coins: int) -> int:
        """Take out what there is."""
        self.coins -= coins
        await report("asked")
        if self.coins < 0:
            raise machine.Refusal("there is less")
        return self.coins

    @machine.signal
    def lay_aside(self) -> None:
        """It is looked into again in a moment."""
        self.told.append("aside")
        machine.schedule(0.4)

    @machine.signal
    async def tear(self) -> None:
        """It is broken, after a step."""
        self.told.append(await report("torn"))
        raise ValueError("it has a hole")

    @machine.repair
    async def mend(self) -> None:
        """It is whole again."""
        self.told.append(await report("mended"))

    @machine.timer
    async def look(self) -> None:
        """The end."""
        self.told.append(await report("looked"))
        machine.complete([self.coins, self.told])


async def owner(engine: Engine) -> object:
    """Everything has a key: whoever begins again does not do it again."""
    handle = await engine.start(Purse.sewn.options(key="P-1"), 3)
    answers: list[object] = [await handle.call(Purse.put.options(key="one"), 4)]
    try:
        await handle.call(Purse.take.options(key="two"), 100)
    except CallRefused as refused:
        answers.append(refused.detail)
    answers.append(await handle.call(Purse.put.options(key="three"), 5))
    await handle.signal(Purse.tear.options(key="hole"))
    await mended(handle)
    await handle.signal(Purse.lay_aside.options(key="four"))
    return [*answers, await handle.result()]


async def mended(handle: Handle[Any]) -> None:
    """Have it repaired once it is broken, unless this program has done so when it ran before."""
    while "mended" not in (view := await handle.status()).state["told"]:
        if view.status is Status.BROKEN:
            with suppress(IllegalMove):
                await handle.repair(Purse.mend)
        await asyncio.sleep(0.2)


END = [12, ["+4", "+5", "mended", "aside", "looked"]]
PURSE = Plot(
    name="purse",
    client=owner,
    answer=[7, "there is less", 12, END],
    workers=(lambda: Registry(Purse.sewn), lambda: Registry(Purse.sewn)),  # type: ignore[arg-type]
    endings=[
        Ending(
            "Purse", Status.COMPLETED, END, steps=("weigh", "weigh", "report", "weigh", "report", "report", "report")
        )
    ],
    deeds={"weighed": 3, "asked": 1, "torn": 1, "mended": 1, "looked": 1},
    seconds=10,
)
