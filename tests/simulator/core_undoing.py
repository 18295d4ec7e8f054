"""Trips that are called off, in every weather: what was booked is given back, and beside that nothing else goes on.

While a trip is undone, what was to be posted still waits for its next attempt: nobody would hear of it. Some undos fail
a few times, and wait long before they are tried again, or break until a person lets them go on; some are queued.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from perdure import Handle, Permanent, Retry, step, workflow
from perdure.errors import IllegalMove, ProcessBroken, ProcessFailed, StoreUnavailable
from perdure.testing.simulator import Cluster

OFTEN = Retry(attempts=40, first=1.0, cap=30.0)

BOOKED: set[str] = set()
GIVEN_BACK: set[str] = set()
TRIED: Counter[str] = Counter()
"""How often each booking was to be given back."""
LATE: list[str] = []
"""What was written after the undoing of their trip had begun."""
BEGUN: set[str] = set()
"""The trips of which something was to be given back."""


@step(retry=OFTEN, timeout=20)
async def give_back(what: str, fails: int, result: str | None) -> None:
    """Fails so often; the last time for good."""
    BEGUN.add(what.partition(" ")[0])
    TRIED[what] += 1
    if TRIED[what] == fails:
        raise Permanent("not today")
    if TRIED[what] < fails:
        raise ConnectionError("later")
    GIVEN_BACK.add(what)


@step(undo=give_back, retry=OFTEN, timeout=20)
async def book(what: str, fails: int) -> str:
    BOOKED.add(what)
    await asyncio.sleep(0.1)
    return what


@step(undo=give_back, retry=OFTEN, timeout=20, queue="hotels")
async def book_there(what: str, fails: int) -> str:
    BOOKED.add(what)
    await asyncio.sleep(1.0)
    return what


def _write(name: str) -> None:
    if name in BEGUN:
        LATE.append(name)
    raise ConnectionError("no stamps")


@step(retry=OFTEN, timeout=20)
async def postcard(name: str) -> None:
    await asyncio.sleep(0.2)
    _write(name)


@step(retry=Retry(attempts=3, first=0.2, then=["break"]), timeout=20)
def letter(name: str) -> None:
    _write(name)


@step(retry=OFTEN, timeout=20, queue="hotels")
async def bill(name: str) -> None:
    """It is another worker's, which goes on with it until the process has ended."""
    raise ConnectionError(name)


@step(retry=Retry.NONE, timeout=20)
async def call_off(seconds: float) -> None:
    await asyncio.sleep(seconds)
    raise Permanent("it rains")


@workflow
async def trip(name: str, fails: int, seconds: float, hotel: bool, posts: int) -> None:
    """Book, write what never comes to its end, and call it all off."""
    await book(f"{name} flight", fails)
    booked = [asyncio.ensure_future(book_there(f"{name} hotel", fails))] if hotel else []
    mail = [postcard(name), letter(name), bill(name)][:posts]
    await asyncio.gather(*booked, *mail, call_off(seconds))


async def trips(cluster: Cluster) -> None:
    """Some trips, all of which are called off."""
    for seen in (BOOKED, GIVEN_BACK, TRIED, LATE, BEGUN):
        seen.clear()
    await asyncio.gather(*(_undone(cluster, f"trip{number}") for number in range(cluster.pick((2, 1, 4)))))
    owed = BOOKED - GIVEN_BACK
    cluster.require("all_owed_is_undone", not owed, f"{sorted(owed)} were not given back")
    cluster.require("undone_in_reverse", not LATE, f"there was mail of {LATE} while they were undone")


async def _undone(cluster: Cluster, name: str) -> None:
    fails, seconds, hotel = cluster.pick((0, 3, 6)), cluster.pick((0.3, 2.0, 8.0)), bool(cluster.draw(2))
    handle = await cluster.client.start(trip, name, fails, seconds, hotel, cluster.pick((1, 2, 3)))
    error = await _called_off(handle)
    cluster.require("the_value_is_exact", "it rains" in str(error), f"{name} failed by {error}")


async def _called_off(handle: Handle[Any]) -> ProcessFailed:
    """How a trip fails; a person lets it go on wherever it breaks."""
    while True:
        try:
            await handle.result()
        except ProcessFailed as error:
            return error
        except ProcessBroken:
            try:
                await handle.retry(who="anna")
            except (IllegalMove, StoreUnavailable):
                await asyncio.sleep(0.5)
