"""Steps that show how far they are, and processes that answer calls meanwhile: nobody is told what is not so."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from typing import Any

from perdure import Call, Retry, attempt, receive, step, workflow
from perdure.client.handle import Handle
from perdure.errors import CallUnanswered
from perdure.kernel.event import EventType
from perdure.kernel.payload import decode
from perdure.kernel.process import FINAL
from perdure.testing.simulator import Cluster
from tests.simulator.misfortune import dismissed, result_of

COPIED = "copied"
REPORTED: Counter[str] = Counter()
"""How many parts each step has ever reported, by its idempotency key."""
MADE_UP: list[str] = []
"""Attempts that were told of more."""
PATIENT = Retry(attempts=500, first=0.1, cap=1.0)


@step(retry=PATIENT, timeout=5)
async def copy(disk: int, parts: int, seconds: float) -> int:
    """Copy what no earlier attempt has reported, and tell of each part.

    Every second disk is half as quick, and every third one fails half way at first.
    """
    this = attempt()
    begun = 0 if this.last_progress is None else this.last_progress
    if begun > REPORTED[this.idempotency_key]:
        MADE_UP.append(f"{this.idempotency_key} begins at {begun}, and {REPORTED[this.idempotency_key]} was reported")
    for part in range(begun, parts):
        this.publish(COPIED, [disk, part])
        await asyncio.sleep(seconds * (1 + disk % 2))
        this.heartbeat(part + 1)
        REPORTED[this.idempotency_key] = max(part + 1, REPORTED[this.idempotency_key])
        if disk % 3 == 2 and this.number == 1 and part == parts // 2:
            raise ConnectionError("the cable is loose")
    return parts


@step(retry=PATIENT, timeout=20, keep_arguments=True)
async def erase(disk: int) -> None:
    """A copy that took too long is erased."""


@workflow
async def backup(disks: list[int], seconds: float, patience: float) -> list[int]:
    """Two disks at a time, each for as long as there is ``patience``; the answer is which were copied."""
    copied: list[int] = []

    async def answer_calls() -> None:
        while True:
            call = await receive("how far", Call[None])
            call.answer(len(copied))

    async def copied_in_time(disk: int, parts: int) -> None:
        try:
            async with asyncio.timeout(patience):
                await copy(disk, parts, seconds)
        except TimeoutError:
            await erase(disk)
        else:
            copied.append(disk)

    async with asyncio.TaskGroup() as group:
        desk = group.create_task(answer_calls())
        for disk in range(0, len(disks), 2):
            pair = [copied_in_time(n, disks[n]) for n in range(disk, min(disk + 2, len(disks)))]
            await asyncio.gather(*pair)
        desk.cancel()
    return copied


async def backups(cluster: Cluster) -> None:
    """Some backups, which people watch and ask; what they are told is what the histories hold, and so is the end."""
    REPORTED.clear()
    MADE_UP.clear()
    await asyncio.gather(*(_backup(cluster) for _ in range(cluster.pick((2, 1, 3)))))
    cluster.require("answers_are_true", not MADE_UP, "; ".join(MADE_UP))


async def _backup(cluster: Cluster) -> None:
    disks = [cluster.pick((5, 1, 12)) for _ in range(cluster.pick((4, 2, 7)))]
    seconds = cluster.pick((0.1, 0.0, 1.0))
    handle = await cluster.client.start(backup, disks, seconds, cluster.pick((600.0, 600.0, 4.0)))
    watcher = asyncio.create_task(_watched(cluster, handle))
    asker = asyncio.create_task(_asked(cluster, handle))
    copied = await result_of(cluster, handle)
    await dismissed(asker)
    shows = await cluster.client.store.history(handle.id_bytes, 1, types=(EventType.PUBLISHED,))
    stored = [decode(event.payload or b"") for event in shows]
    cluster.require("in_order", await watcher == stored, f"the watcher was told {watcher.result()}, stored is {stored}")
    for disk, parts in enumerate(disks):
        shown = [part for told, part in stored if told == disk]
        steps = all(later <= earlier + 1 for earlier, later in pairwise(shown))
        cluster.require("in_order", shown[:1] in ([], [0]) and steps, f"of disk {disk} was told {shown}")
        whole = disk not in copied or shown[-1:] == [parts - 1]
        cluster.require("accepted_is_kept", whole, f"disk {disk} was copied in {parts} parts, and told {shown}")
        again = sum(later <= earlier for earlier, later in pairwise(shown))
        cluster.probe("a part was copied once more", again)


async def _watched(cluster: Cluster, handle: Handle[Any]) -> list[list[int]]:
    """All that is published, until the end; where the weather has parked it, it is watched on."""
    seen: list[list[int]] = []
    after = 0
    while True:
        final = (await cluster.client.row(handle.id)).status in FINAL
        stream = handle.values(COPIED, list[int], after=after)
        async for value in stream:
            seen.append(value)
            after = stream.number
        if final:
            return seen
        await asyncio.sleep(1)


async def _asked(cluster: Cluster, handle: Handle[Any]) -> None:
    """Somebody asks again and again how far it is; it never goes back."""
    last = 0
    while True:
        await asyncio.sleep(cluster.pick((0.3, 0.0, 2.0)))
        with suppress(CallUnanswered):
            far = await handle.call("how far", None, int)
            cluster.require("people_are_told_the_truth", far >= last, f"{far} disks are copied, and {last} were before")
            cluster.probe("a workflow answered a call", 1)
            last = far
