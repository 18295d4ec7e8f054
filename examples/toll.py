"""A toll road with two lanes: lorries take both, no haulier keeps the others waiting, and the road can be closed.

Run it with ``python -m examples.toll``. It needs nothing but a folder for its database.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

from perdure import Engine, step, workflow

on_the_road: dict[str, int] = {}
fullest = 0
passed: list[str] = []


@step(queue="road")
async def drive(haulier: str, lanes: int) -> str:
    """Pass the toll; a lorry takes two lanes."""
    global fullest
    on_the_road[haulier] = on_the_road.get(haulier, 0) + lanes
    fullest = max(fullest, sum(on_the_road.values()))
    await asyncio.sleep(0.01)
    on_the_road[haulier] -= lanes
    passed.append(haulier)
    return haulier


@workflow
async def convoy(haulier: str, cars: int, lorries: int) -> int:
    """All vehicles of one haulier, each when its turn has come."""
    car, lorry = drive.options(share=haulier), drive.options(share=haulier, cost=2)
    rides = [*(car(haulier, 1) for _ in range(cars)), *(lorry(haulier, 2) for _ in range(lorries))]
    return len(await asyncio.gather(*rides))


async def waiting(engine: Engine, vehicles: int) -> None:
    """Wait until so many vehicles stand before the toll."""
    while True:
        [road] = await engine.queues.list()
        if road.waiting == vehicles:
            return
        await asyncio.sleep(0.01)


async def main(url: str) -> None:
    """The road is closed, two convoys queue up, and when it opens they take turns."""
    async with Engine(url, work=True, workflows=[convoy], queues=["road"]) as engine:
        await engine.queues.limit("road", concurrency=2, who="the highway authority", why="it has two lanes")
        closed = await engine.queues.block("road", who="Ann", why="snow")
        print(f"the road is closed by {closed.blocked_by}: {closed.blocked_why}")
        large = await engine.start(convoy, "Large & Sons", 30, 5)
        small = await engine.start(convoy, "Small", 3, 0)
        await waiting(engine, 38)
        await engine.queues.unblock("road", who="Ann")
        print(f"Small: {await small.result()} have passed, the other convoy is on its way: {len(passed) < 38}")
        print(f"Large & Sons: {await large.result()} have passed")
        print(f"never more than {fullest} lanes were taken")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/toll.db"))
