"""A parcel service whose people step in: they hold a parcel, answer for a machine that is broken, and send one again.

Run it with ``python -m examples.parcels``. It needs nothing but a folder for its database.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

from perdure import Engine, Permanent, ProcessFailed, Status, receive, step, workflow
from perdure.client.handle import Handle

scale_works = False
driven: list[str] = []


@step
async def weigh(parcel: str) -> float:
    """Ask the scale, which does not work."""
    if not scale_works:
        raise Permanent("the scale does not answer")
    return 2.5


@step
async def label(parcel: str) -> str:
    """Print a label."""
    return f"label of {parcel}"


@step
async def drive(parcel: str) -> str:
    """Bring it there."""
    driven.append(parcel)
    return f"{parcel} was driven, tour {len(driven)}"


@workflow
async def parcel(name: str) -> str:
    """Weigh and label a parcel, and drive it when the customer is at home."""
    weight, text = await asyncio.gather(weigh(name), label(name))
    await receive("at home")
    return f"{await drive(name)}: {weight} kg, {text}"


async def by_hand(handle: Handle[str]) -> None:
    """The scale is broken: a person reads another one, and the parcel goes on without it."""
    try:
        await handle.result(10)
    except ProcessFailed as error:
        print(f"{handle.key}: {error.type}, for the scale does not answer")
    await handle.set_result("weigh", 3.0, who="Ann", why="weighed in the kitchen")
    await handle.signal("at home")
    print(f"{handle.key}: {await handle.result(10)}")


async def held(handle: Handle[str]) -> None:
    """Customs want to look into the parcel: it waits, also if its customer is at home, until they have."""
    await handle.hold(who="customs", why="what is in it?")
    await handle.signal("at home")
    seen = await handle.status()
    assert seen.status is Status.HELD
    print(f"{handle.key}: {seen.waiting}")
    await handle.resume(who="customs", why="it is a cake")
    print(f"{handle.key}: {await handle.result(10)}")


async def again(handle: Handle[str]) -> None:
    """The parcel was lost on its tour: only that is done again, and the history of the first tour is kept."""
    await handle.restart_from("drive", who="Bob", why="it fell off")
    print(f"{handle.key}: {await handle.result(10)}")
    before = await handle.history(run=1)
    print(f"{handle.key}: its first run can still be read, it ended as {before[-1].type.name.lower()}")


async def main(url: str) -> None:
    """A broken scale, the customs, and a bump in the road."""
    global scale_works
    async with Engine(url, work=True, workflows=[parcel]) as engine:
        await by_hand(await engine.start(parcel.options(key="books"), "books"))
        scale_works = True
        cake = await engine.start(parcel.options(key="cake"), "cake")
        await held(cake)
        await again(cake)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/parcels.db"))
