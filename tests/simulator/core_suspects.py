"""Suspects: some that kill their worker among many innocent ones, and innocent ones that last long, twice orphaned."""

from __future__ import annotations

import asyncio
from collections import Counter

from perdure import Retry, step, workflow
from perdure.kernel.process import Status
from perdure.kernel.quarantine import company, is_suspect
from perdure.limits import SUSPECT_DEATHS
from perdure.testing.simulator import Cluster
from tests.simulator.misfortune import by_the_weather_alone

WAITS_SECONDS = 60.0
"""No suspect waits longer for a place while there are places; in the simulation what is started starts at once."""
LASTS_SECONDS = 600.0
WORKERS_SECONDS = 40.0
"""Until killed workers are back, in the worst case."""


class Now:
    """The cluster of the history that is played; ``begun`` is how often a step that lasts has begun in it."""

    cluster: Cluster
    begun: int


@step(retry=Retry.NONE, timeout=2 * LASTS_SECONDS)
async def lasting(seconds: float) -> str:
    Now.begun += 1
    await asyncio.sleep(seconds)
    return "done"


@step(retry=Retry.NONE)
async def kill() -> None:
    await asyncio.sleep(0.2)
    await Now.cluster.die()


@workflow
async def innocent(seconds: float) -> str:
    return await lasting(seconds)


@workflow
async def guilty() -> None:
    await kill()


async def guilty_among_many(cluster: Cluster) -> None:
    """Some kill their worker: they are parked after deaths alone, and whoever does no harm is never parked."""
    Now.cluster, Now.begun = cluster, 0
    for n in range(cluster.pick((12, 5, 30))):
        await cluster.client.start(innocent.options(key=f"{n}"), float(cluster.pick((8, 2, 20))))
    for _ in range(cluster.pick((1, 2, 3))):
        await cluster.client.start(guilty)
    await asyncio.sleep(cluster.pick((5.0, 30.0)))
    cluster.heal()
    await cluster.settled(stall=LASTS_SECONDS)
    for row in cluster.rows():
        if row.kind == "guilty":
            found = row.status is Status.BROKEN and row.alone_deaths > 0
            cluster.require("poison_is_parked", found, f"the guilty is {row.status}, {row.alone_deaths} deaths alone")
        else:
            good = (row.status is Status.COMPLETED and row.deaths == 0) or by_the_weather_alone(cluster, row)
            cluster.require("the_innocent_go_on", good, f"an innocent process is {row.status}, {row.deaths} deaths")


async def lasting_suspects(cluster: Cluster) -> None:
    """Thrice the workers die with all in hand: each goes on soon, in groups beside each other, however long."""
    Now.cluster, Now.begun = cluster, 0
    many = cluster.pick((6, 3, 9))
    for n in range(many):
        await cluster.client.start(innocent.options(key=f"{n}"), LASTS_SECONDS)
    dead: set[bytes] = set()
    for _ in range(3):
        await _all_in_hand(cluster, dead)
        dead |= {row.owner for row in cluster.rows() if row.owner}
        for node in [node for node in cluster.workers if node.alive]:
            node.kill()
            cluster.storm.restart(node)
    await _all_in_hand(cluster, dead)
    suspects = [row for row in cluster.rows() if is_suspect(row)]
    cluster.require("the_innocent_are_suspects", len(suspects) == many, f"{len(suspects)} of {many} are suspects")
    cluster.heal()
    await cluster.settled(stall=2 * LASTS_SECONDS)
    done = [row for row in cluster.rows() if row.status is Status.COMPLETED and row.deaths == 0]
    cluster.require("the_innocent_go_on", len(done) == many, f"{len(done)} of {many} have completed")


async def taken_over(cluster: Cluster) -> None:
    """A quarantine worker stands still past its lease: who takes its suspect over runs it to its end."""
    Now.cluster, Now.begun = cluster, 0
    await cluster.client.start(innocent, 30.0)
    dead: set[bytes] = set()
    for _ in range(SUSPECT_DEATHS):
        await _all_in_hand(cluster, dead)
        dead |= {row.owner for row in cluster.rows() if row.owner}
        for node in [node for node in cluster.workers if node.alive]:
            cluster.storm.kill(node)
    await _all_in_hand(cluster, dead)
    (row,) = cluster.rows()
    fate = cluster.server.fate
    cluster.server.fate = lambda store, door: "failed before" if door == "retire" else ""  # nobody ends it before
    for node in [node for node in cluster.workers if node.life is cluster.server.locks[row.owner or b""]]:
        node.pause()
    await asyncio.sleep(cluster.swarm.options.lease_seconds)
    cluster.bear(cluster.workers[0])
    await _all_in_hand(cluster, {row.owner or b""})
    cluster.server.fate = fate
    lapsed = any(b'"lease":"lapsed"' in (event.payload or b"") for event in cluster.monitor.known[row.id].events)
    cluster.probe("a suspect was taken over", lapsed)
    cluster.heal()
    await cluster.settled()
    cluster.require("suspects_are_run_to_their_end", Now.begun == SUSPECT_DEATHS + 2, f"it was begun {Now.begun} times")


async def cut_off(cluster: Cluster) -> None:
    """Nobody can beat, and leases are lost: a quarantine worker lets go of one suspect before it takes another."""
    Now.cluster, Now.begun = cluster, 0
    for _ in range(6):
        await cluster.client.start(innocent, 30.0)
    dead: set[bytes] = set()
    while not all(company(row) == 1 for row in cluster.rows()):
        await _all_in_hand(cluster, dead)
        dead |= {row.owner for row in cluster.rows() if row.owner}
        for node in [node for node in cluster.workers if node.alive]:
            cluster.storm.kill(node)
        await asyncio.sleep(WORKERS_SECONDS / 2)
    fate = cluster.server.fate
    cluster.server.fate = lambda store, door: "failed before" if door == "beat" else ""
    claims = set[tuple[bytes, int]]()
    for _ in range(300):
        await asyncio.sleep(0.1)
        owned = Counter(row.owner for row in cluster.rows() if row.owner and is_suspect(row))
        claims |= {(row.owner, row.token) for row in cluster.rows() if row.owner}
        cluster.require("suspects_run_apart", max(owned.values(), default=0) < 2, "a worker owns two that run alone")
    cluster.server.fate = fate
    cluster.probe("a worker claimed again", len(claims) > len({owner for owner, _ in claims}))


async def _all_in_hand(cluster: Cluster, dead: set[bytes]) -> None:
    """Wait until a worker that lives has each process in hand, for as long as a suspect may wait for a place."""
    until = cluster.loop.now + WAITS_SECONDS + WORKERS_SECONDS
    while waiting := [row for row in cluster.rows() if row.owner is None or row.owner in dead]:
        told = f"{len(waiting)} suspects wait for a place"
        cluster.require("suspects_run_soon", cluster.loop.now < until, told)
        await asyncio.sleep(0.5)
    await asyncio.sleep(1.0)
