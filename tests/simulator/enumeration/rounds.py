"""Rounds of a watchman: continue-as-new, a value of each, a step that kills its worker, a worker that is stopped."""

from __future__ import annotations

import asyncio

from perdure import Status, continue_as_new, publish, step, workflow
from perdure.authoring.registry import Registry
from perdure.engine import Engine
from perdure.testing.simulator import Cluster
from tests.simulator.enumeration.plot import Ending, Plot, deed, tries
from tests.simulator.ledger import Desk

ROUNDS = 3


@step
async def walk(number: int) -> int:
    if number == 1 and tries("walk") == 1 and Desk.die is not None:
        await Desk.die()
    return int(deed(f"walked round {number}", number))


@workflow
async def rounds(number: int = 1) -> str:
    publish("walked", await walk(number))
    if number < ROUNDS:
        await asyncio.sleep(0.1)
        continue_as_new(number + 1)
    return f"walked {number} rounds"


async def captain(engine: Engine) -> object:
    """Follow from the first run on: a stream begins with the present one if nothing is said."""
    handle = await engine.start(rounds.options(key="night"))
    walked = [value async for value in handle.values("walked", int, run=1)]
    return [walked, await handle.result()]


async def relieve(cluster: Cluster) -> None:
    """The worker that has the process in hand is asked to stop, and starts anew."""
    node = cluster.workers[0]
    await asyncio.sleep(0.45)
    if node.engine is not None:
        node.terminate()
        await node.ended()
    node.start()


NIGHT = Plot(
    name="rounds",
    client=captain,
    answer=[[1, 2, 3], "walked 3 rounds"],
    workers=(lambda: Registry(rounds), lambda: Registry(rounds)),
    endings=[Ending("rounds", Status.COMPLETED, "walked 3 rounds", run=3, steps=("walk",))],
    deeds={"walked round 1": 1, "walked round 2": 1, "walked round 3": 1},
    seconds=10,
    around=relieve,
)
