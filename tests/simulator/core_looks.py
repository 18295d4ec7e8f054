"""Looks for letters in the store that the code cuts short at any moment: whoever replays it goes the same way."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from perdure import Retry, receive, step, workflow
from perdure.client.handle import Handle
from perdure.errors import ProcessFailed
from perdure.kernel.event import EventType
from perdure.testing.simulator import Cluster
from perdure.testing.simulator.choice import Choices
from perdure.testing.simulator.swarm import Swarm
from tests.simulator.misfortune import result_of

TOPICS = ("bills", "orders", "claims")
MOMENTS = (1, 0, 2, 3, 4, 5, 8, -1, -1000)
"""When a clerk is sent home: rounds of the loop after it began; those below zero are microseconds."""
RETRIED: set[int] = set()
"""The desks that a person has retried."""
PATIENT = Retry(attempts=500, first=0.1, cap=1.0)


@step(retry=PATIENT, timeout=20)
async def filed(topic: str, number: int) -> int:
    return number


@step(retry=PATIENT, timeout=20)
async def found_empty(topic: str) -> None:
    """There was nothing for this clerk."""


@step(retry=PATIENT, timeout=20)
async def sent_home(topic: str) -> None:
    """This clerk did not come to see what there is."""


@step(retry=Retry.NONE)
async def closed(desk: int) -> None:
    """Fail until a person retries it: then the whole history is replayed."""
    if desk not in RETRIED:
        raise ValueError("the door sticks")


async def clerk(topic: str) -> int | None:
    """Take the next letter of the topic, if there is one."""
    try:
        return await receive(topic, int, timeout=0)
    except TimeoutError:
        return None


async def ended(topic: str, moment: int, taken: dict[str, list[int]]) -> None:
    """Send a clerk home at that moment, and take a step that tells how it ended: a replay that differs does not fit."""
    work = asyncio.create_task(clerk(topic))
    await asyncio.sleep(max(0, -moment) * 1e-6)
    for _ in range(moment):
        await asyncio.sleep(0)
    gone = work.cancel()
    await asyncio.wait([work])
    if gone != work.cancelled():
        raise RuntimeError(f"the clerk for {topic} was sent home and stayed")
    if gone:
        await sent_home(topic)
    elif (number := work.result()) is None:
        await found_empty(topic)
    else:
        taken[topic].append(await filed(topic, number))


@workflow
async def desk(number: int, moments: list[list[int]]) -> dict[str, list[int]]:
    """A letter begins a day, each clerk looks for one letter and is sent home; in the evening the others are taken."""
    taken: dict[str, list[int]] = {topic: [] for topic in TOPICS}
    for day in moments:
        await receive("morning")
        await asyncio.gather(*(ended(topic, moment, taken) for topic, moment in zip(TOPICS, day, strict=True)))
    await receive("evening")
    for topic in TOPICS:
        while (letter := await clerk(topic)) is not None:
            taken[topic].append(await filed(topic, letter))
    await closed(number)
    return taken


async def looking(cluster: Cluster) -> None:
    """Some desks, whose letters come when they like: each is filed once, in order, whoever was sent home meanwhile."""
    RETRIED.clear()
    await asyncio.gather(*(_desk(cluster, number) for number in range(cluster.pick((2, 1, 4)))))
    types = [event.type for known in cluster.monitor.known.values() for event in known.events]
    cluster.probe("a look for letters was cut short", types.count(EventType.LOOK_CUT_SHORT))


async def _desk(cluster: Cluster, number: int) -> None:
    moments = [[cluster.pick(MOMENTS) for _ in TOPICS] for _ in range(cluster.pick((6, 2, 12)))]
    handle = await cluster.client.start(desk, number, moments)
    sent: dict[str, list[int]] = {topic: [] for topic in TOPICS}
    for day in range(len(moments)):
        for topic in TOPICS:
            for n in range(cluster.pick((0, 1, 2))):
                letter = 10 * day + n
                await handle.signal(topic, letter, key=f"{topic} {letter}")
                sent[topic].append(letter)
        await handle.signal("morning", key=f"morning {day}")
        await asyncio.sleep(cluster.pick((0.0, 0.5, 2.0)))
    await handle.signal("evening", key="evening")
    taken = await _taken(cluster, handle, number)
    cluster.require("the_value_is_exact", taken == sent, f"desk {number} was sent {sent} and has filed {taken}")


async def _taken(cluster: Cluster, handle: Handle[dict[str, list[int]]], number: int) -> dict[str, list[int]]:
    """What a desk has filed, once a person has retried it after its first failure."""
    try:
        await result_of(cluster, handle)
    except ProcessFailed:
        RETRIED.add(number)
        await handle.retry(who="anna")
    return await result_of(cluster, handle)


def weather(choices: Choices) -> Swarm:
    """Any weather, in which few processes are kept in memory."""
    drawn = Swarm.drawn(choices)
    return replace(drawn, options=replace(drawn.options, cached=choices.pick((0, 2, 50), "cache")))


looking.weather = weather  # type: ignore[attr-defined]
