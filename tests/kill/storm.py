"""Kills and stops in numbers: workers die at any moment while others work; stopped ones answer when nobody waits."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

from perdure.engine import Engine
from tests.failover.load import under_load
from tests.kill.harness import LIMIT, Harness, laws_hold, said
from tests.kill.workload import LEDGER, five_pauses, held, poison, three_steps

LANES = 3
AT_ONCE = 40
HOSTED = [three_steps, five_pauses, held, poison]
QUICK = {"lease_seconds": 1.2, "beat_seconds": 0.2}

Told = Callable[[str], None]


async def kills(url: str, folder: Path, wanted: int, seed: int, told: Told) -> str:
    """Kill workers under load, each at a moment of its own and a new one in its place, until there were ``wanted``."""
    chance, killed = random.Random(seed), 0
    async with under_load(url, folder, workers=1, at_once=AT_ONCE) as load:

        async def lane() -> None:
            nonlocal killed
            while killed < wanted:
                child = await load.harness.start_worker(options={"in_flight": AT_ONCE})
                await said(child, "ready")
                await load.grown(chance.randrange(1, 40))
                await child.close()  # kills it, and lets go of the pipe to it
                load.harness.workers.remove(child)
                killed += 1
                if killed % 50 == 0:
                    told(f"{killed:,} kills, {len(load.finished):,} processes finished")

        await asyncio.gather(*(lane() for _ in range(LANES)))
    return f"{killed:,} SIGKILLs: {load.verdict}"


async def stops(urls: list[str], folder: Path, wanted: int, told: Told) -> str:
    """Stop workers before a commit until somebody else has done their work, let them go on, and see what they hear."""
    refused = 0

    async def lane(place: int, url: str) -> None:
        nonlocal refused
        harness = Harness(url, folder, quiet=True)
        os.environ[LEDGER] = str(harness.ledger)  # the survivor takes steps too
        try:
            async with Engine(url, work=True, workflows=HOSTED) as survivor:
                for cycle in range(place, wanted, len(urls)):
                    await stopped_once(harness, survivor, 1 + cycle // len(urls) % 3)
                    refused += 1
                    if refused % 10 == 0:
                        told(f"{refused} stops")
                await laws_hold(survivor)
        finally:
            await harness.end()

    await asyncio.gather(*(lane(place, url) for place, url in enumerate(urls)))
    return f"{wanted:,} SIGSTOPs past the lease, then SIGCONT: {refused:,} late answers, each refused, nothing changed"


async def stopped_once(harness: Harness, survivor: Engine, call: int) -> None:
    """One worker stops before its commit of that number, is taken over, and answers late."""
    kill_point = {"door": "commit", "call": call, "side": "before", "signal": signal.SIGSTOP}
    child = await harness.start_worker(start="three_steps", options=QUICK, kill_point=kill_point, timeout=LIMIT)
    id = await said(child, "started")
    assert await survivor.process(id).result(timeout=LIMIT) == 6
    before = (await survivor.row(id), await survivor.process(id).history())
    child.send_signal(signal.SIGCONT)
    assert await said(child, "result") == "6"
    assert json.loads(await said(child, "metrics"))["commits_refused"] == 1, "the late answer was refused"
    assert (await survivor.row(id), await survivor.process(id).history()) == before
    await child.wait()
