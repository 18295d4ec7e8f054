"""Forks in every weather: one process for each key, with the past of its original, under keys of its own."""

from __future__ import annotations

import asyncio

from perdure import Handle, Retry, attempt, new_uuid, receive, step, workflow
from perdure.errors import IllegalMove, StoreUnavailable
from perdure.kernel.event import EventType
from perdure.kernel.run import opening_of
from perdure.testing.simulator import Cluster

DEEDS: dict[str, set[str]] = {}
"""The keys under which each deed was done, by its name."""


@step(retry=Retry(attempts=40, first=0.2, cap=2.0), timeout=60)
async def deed(name: str, drawn: str) -> str:
    """Write down under which key it was done."""
    DEEDS.setdefault(name, set()).add(attempt().idempotency_key)
    await asyncio.sleep(0.2)
    return drawn


@workflow
async def errand(number: int) -> list[str]:
    first = await deed(f"{number} first", str(new_uuid()))
    both = await asyncio.gather(deed(f"{number} left", first), deed(f"{number} right", first))
    told = await receive("go", str)
    return [first, *both, told, await deed(f"{number} last", str(new_uuid()))]


PLACES: tuple[str | int | None, ...] = ("deed:1", "deed:2", 2, 4, None)


async def forks(cluster: Cluster) -> None:
    """Some processes, each forked twice under one key as it goes on, or once it has ended."""
    DEEDS.clear()
    numbers = range(cluster.pick((1, 2, 4)))
    handles = [await cluster.client.start(errand, number) for number in numbers]
    await asyncio.gather(*(_fork(cluster, handle.id, number) for number, handle in zip(numbers, handles, strict=True)))


async def _insist(handle: Handle[list[str]], place: str | int | None, key: str) -> Handle[list[str]]:
    """Ask for a fork until it is there; where the process has not come to the place yet, a moment later."""
    while True:
        try:
            return await handle.fork(place, key=key)
        except (IllegalMove, StoreUnavailable):
            await asyncio.sleep(0.5)
            if place is not None:
                await handle.signal("go", "on", key="go")


async def _fork(cluster: Cluster, old: str, number: int) -> None:
    await asyncio.sleep(cluster.pick((0.1, 0.5, 2.0, 5.0)))
    handle: Handle[list[str]] = cluster.client.process(old)
    if cluster.draw(2):
        await handle.signal("go", "on", key="go")
    place = cluster.pick(PLACES)
    ids = {(await _insist(handle, place, f"fork {number}")).id for _ in range(2)}
    cluster.require("effect_once", len(ids) == 1, f"one key has the forks {ids}")
    fork: Handle[list[str]] = cluster.client.process(ids.pop())
    for one in (handle, fork):
        await one.signal("go", "on", key="go")
    theirs, ours = await handle.result(), await fork.result()
    cluster.require("the_value_is_exact", ours[3] == theirs[3] == "on", f"{number} came to {ours} and {theirs}")
    for name, keys in ((name, keys) for name, keys in DEEDS.items() if name.startswith(f"{number} ")):
        owners = [key.partition("/")[0] for key in keys]
        cluster.require("effect_once", len(owners) == len(set(owners)), f"{name} was done under {keys}")
        cluster.require("effect_once", set(owners) <= {old, fork.id}, f"{name} was done by {owners}")
        cluster.require("effect_once", old in owners, f"{name} was not done by its own process")
    kept = not any(fork.id in key for key in DEEDS[f"{number} first"])
    cluster.require("the_value_is_exact", ours[0] == theirs[0] or not kept, f"the fork of {number} changed a result")
    if ours[4] == theirs[4] and len(DEEDS[f"{number} last"]) > 1:
        events = await cluster.client.store.history(fork.id_bytes, 1, limit=100)
        kept_events = events[1 : opening_of(events).kept + 1]  # the number is drawn in the turn that hears the message
        heard = any(event.type is EventType.MESSAGE_RECEIVED for event in kept_events)
        cluster.require("the_value_is_exact", heard, "drawn twice")
