"""Misfortune: an innocent process that was parked because the weather itself killed its worker too often."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from msgspec import json

from perdure.client.handle import Handle
from perdure.errors import ProcessBroken
from perdure.kernel.event import EventType
from perdure.kernel.failure import Failure
from perdure.kernel.names import id_bytes
from perdure.kernel.process import Process, Status
from perdure.limits import ALONE_DEATHS
from perdure.testing.simulator import Cluster


def by_the_weather_alone(cluster: Cluster, row: Process) -> bool:
    """Whether it is parked as poison, and the weather has killed every worker whose death counts as one alone.

    No engine can tell that from guilt. A worker that code has ended is not the weather's, nor is a death alone while
    other processes were in hand.
    """
    if row.status is not Status.BROKEN or Failure.shown(row.error or b"").type != "Poison":
        return False
    before = 0
    for event in cluster.monitor.known[row.id].events:
        told = json.decode(event.payload or b"{}") if event.type is EventType.REVIVED else {}
        if told.get("alone_deaths", 0) > before:
            worker = id_bytes(told["worker"].split()[-1])
            if worker not in cluster.storm.killed or cluster.storm.killed[worker] - {row.id}:
                return False
        before = told.get("alone_deaths", before)
    return before >= ALONE_DEATHS


async def result_of(cluster: Cluster, handle: Handle[Any]) -> Any:
    """Its result; a person lets it go on where it was parked by the weather alone."""
    while True:
        try:
            return await handle.result()
        except ProcessBroken:
            if not by_the_weather_alone(cluster, await cluster.client.row(handle.id)):
                raise
        await handle.retry(who="anna")


async def dismissed(person: asyncio.Task[Any]) -> None:
    """End what a person does for ever; raises what that person has met."""
    person.cancel()
    with suppress(asyncio.CancelledError):
        await person
