"""The soak: a steady load with workers killed all the while; nothing is lost, and nothing grows."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from statistics import linear_regression, mean, stdev
from typing import Any

import asyncpg

from perdure import Handle
from perdure.engine import Engine
from perdure.limits import QUARANTINE_WORKERS
from tests.load.allocated import Allocated, allocated
from tests.load.pool import LIMIT, Held, Pool, held, pool_on
from tests.load.program import Counter, whole
from tests.load.verdict import Verdict
from tests.transactions.caller import address

WORKERS = 3
AT_ONCE = 20
FEW = 10
CACHED = 20  # by a worker: of all machines that wait, most have left memory
MACHINES = 10  # of each lane
PACE = {"retention_seconds": 5.0, "lease_seconds": 6.0, "beat_seconds": 1.0, "cached": CACHED}
SAMPLE_SECONDS = 2.0
MEMORY_GROWTH = 1.05
SIZE_GROWTH = 1.25
SLACK_BYTES = 2 * 1024 * 1024
FEW_OBJECTS = 2_000
SLACK_MIB = 0.5  # of memory that grows: what an allocator keeps by chance
FEW_MORE = 2  # descriptors or threads that may be open at one look and not at another
KEPT = Path(__file__).parents[2] / "build"

TABLES = (
    "SELECT count(*) FROM {schema}process",
    "SELECT count(*) FROM {schema}event",
    "SELECT count(*) FROM {schema}worker",
)

Pause = Callable[[], Awaitable[object]]


async def sizes(url: str) -> dict[str, float]:
    """Bytes of the log of writes and of all tables, and rows of the tables that could grow."""
    if url.startswith("sqlite:"):
        return await asyncio.to_thread(_sizes_of_file, url.removeprefix("sqlite:///"))
    connection = await asyncpg.connect(address(url), statement_cache_size=0)
    try:
        wal = await connection.fetchval("SELECT sum(size)::bigint FROM pg_ls_waldir()")
        tables = await connection.fetchval(
            "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'perdure' AND relkind = 'r'"
        )
        rows = [await connection.fetchval(one.format(schema="perdure.")) for one in TABLES]
    finally:
        await connection.close()
    return dict(zip(("wal", "tables", "processes", "events", "workers"), (wal, tables, *rows), strict=True))


def _sizes_of_file(path: str) -> dict[str, float]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "freelist_count", "page_size")
        )
        rows = [connection.execute(one.format(schema="")).fetchone()[0] for one in TABLES]
    wal = Path(f"{path}-wal")
    written = wal.stat().st_size if wal.exists() else 0
    return dict(
        zip(("wal", "tables", "processes", "events", "workers"), (written, (pages - free) * size, *rows), strict=True)
    )


class Soak:
    """Lanes that each start a process, wait for its result and start the next; and a killer among the workers.

    Each lane has machines too, which leave memory while they wait: it calls the oldest, ends it and begins another.
    """

    def __init__(self, engine: Engine, pool: Pool, kept: Path) -> None:
        self.engine = engine
        self.pool = pool
        self._kept = kept
        self.started = 0
        self.finished = 0
        self.kills = 0
        self._stopping = False
        self._grown = asyncio.Event()

    async def lane(self) -> None:
        machines: deque[Handle[Any]] = deque()
        while not self._stopping:
            self.started += 1
            n = self.started
            handle = await self.engine.start(whole, n)
            machines.append(await self.engine.start(Counter.begin))
            if len(machines) > MACHINES:
                await counted_and_ended(machines.popleft())
            assert await handle.result(LIMIT) == n + 4
            self.finished += 1
            self._grown.set()
        await asyncio.gather(*map(counted_and_ended, machines))

    async def grown(self, processes: int) -> None:
        """Wait until so many more have finished."""
        wanted = self.finished + processes
        async with asyncio.timeout(LIMIT):
            while self.finished < wanted and not self._stopping:
                self._grown.clear()
                await self._grown.wait()

    async def kill(self, pause: Pause) -> None:
        """Kill the workers in turn, except the first, whose memory tells something; each has its successor."""
        while True:
            await pause()
            if self._stopping:
                break
            victim = self.pool.members.pop(1)
            await victim.kill()
            self.kills += 1
            await self.pool.ready(options=PACE)

    async def sample(self) -> None:
        """Measure everything again and again, into a file: the memory of this program is measured too."""
        self._kept.write_text("")
        while not self._stopping:
            found = await sizes(self.engine.store.url)
            worker = self.pool.members[0]
            told = (await worker.figures())["allocated"]
            for name, has, uses in (("client", held(os.getpid()), allocated()), ("worker", worker.held(), told)):
                figures = zip(Held._fields + Allocated._fields, (*has, *uses), strict=True)
                found |= {f"{name} {what}": figure for what, figure in figures}
            with self._kept.open("a") as file:
                file.write(f"{json.dumps(found)}\n")
            await asyncio.sleep(SAMPLE_SECONDS)

    def samples(self) -> list[dict[str, float]]:
        """What was measured, the first sample first."""
        return [json.loads(line) for line in self._kept.read_text().splitlines()]

    def stop(self) -> None:
        """Start nothing more; what is under way comes to its end."""
        self._stopping = True
        self._grown.set()


async def counted_and_ended(counter: Handle[Any]) -> None:
    """Call a machine that has waited for a while, and end it."""
    async with asyncio.timeout(LIMIT):
        assert await counter.call(Counter.count, 0) == 0
        await counter.call(Counter.end)
        assert await counter.result() == 1


async def soak(url: str, folder: Path, minutes: float, seed: int) -> Verdict:
    """The long form: what is measured in the last third of the time is compared with the third before."""
    chance = random.Random(seed)
    verdict = Verdict(f"soak of {minutes:g} minutes")

    async def few_seconds() -> None:
        await asyncio.sleep(chance.uniform(2.0, 6.0))

    KEPT.mkdir(exist_ok=True)
    kept = KEPT / f"soak-{url.partition(':')[0]}.jsonl"
    made = await _soaked(url, folder, kept, few_seconds, lambda soak: asyncio.sleep(minutes * 60), WORKERS, AT_ONCE)
    samples = made.samples()
    verdict.note(f"samples in {kept.relative_to(KEPT.parent)}")
    verdict.note(f"{made.started:,} processes started and all finished, {made.kills} workers killed")
    third = len(samples) // 3
    before, last = samples[third : 2 * third], samples[-third:]
    for name in ("client", "worker"):
        was, now = (mean(sample[f"{name} memory"] for sample in part) for part in (before, last))
        verdict.bound(
            f"MiB of the {name}, {was / 2**20:.1f} then", now / 2**20, (was * MEMORY_GROWTH + SLACK_BYTES) / 2**20
        )
        grown, noise = slope([sample[f"{name} memory"] / 2**20 for sample in samples[third:]])
        verdict.bound(f"MiB by which the {name} grows in that time, in the mean", grown, max(2 * noise, SLACK_MIB))
        grown, noise = slope([sample[f"{name} bytes"] / 2**20 for sample in samples[third:]])
        verdict.bound("MiB of it in use, for larger objects", grown, max(2 * noise, SLACK_MIB))
        grown, noise = slope([sample[f"{name} objects"] for sample in samples[third:]])
        verdict.bound("small objects by which it grows in that time", grown, max(2 * noise, FEW_OBJECTS))
        for what in ("descriptors", "threads"):
            was, now = (max(sample[f"{name} {what}"] for sample in part) for part in (before, last))
            verdict.bound(f"{what} of the {name}, {was:.0f} then", now, was + FEW_MORE)
    for name in ("wal", "tables"):
        was, now = (max(sample[name] for sample in part) for part in (before, last))
        verdict.bound(
            f"MiB of the {name}, {was / 2**20:.1f} then", now / 2**20, (was * SIZE_GROWTH + SLACK_BYTES) / 2**20
        )
    for name in ("processes", "events"):
        was, now = (max(sample[name] for sample in part) for part in (before, last))
        verdict.bound(f"rows of {name}, {was:,.0f} then", now, was * SIZE_GROWTH + 100)
    # Those that have ended are kept for a day.
    verdict.bound("rows of workers", samples[-1]["workers"], made.kills + WORKERS + QUARANTINE_WORKERS)
    return verdict


def slope(samples: list[float]) -> tuple[float, float]:
    """By how much samples grow from first to last along the line that fits them best; and how far they lie off it."""
    rate, start = linear_regression(range(len(samples)), samples)
    return rate * len(samples), stdev(one - start - rate * n for n, one in enumerate(samples))


async def kills_under_load(url: str, folder: Path, kills: int) -> str:
    """The short form: so many kills, each when some more have finished."""

    async def enough(soak: Soak) -> None:
        while soak.kills < kills:
            await soak.grown(1)

    soak = await _soaked(url, folder, folder / "samples.jsonl", None, enough, 2, FEW)
    samples = soak.samples()
    assert soak.finished == soak.started
    assert soak.kills >= kills
    assert samples[0].keys() == samples[-1].keys()
    return f"{soak.kills} kills, {soak.finished:,} processes, nothing lost"


async def _soaked(
    url: str,
    folder: Path,
    kept: Path,
    pause: Pause | None,
    enough: Callable[[Soak], Awaitable[object]],
    workers: int,
    at_once: int,
) -> Soak:
    async with pool_on(url, folder) as pool, Engine(url, migrate=True) as client:
        await pool.ready(workers, options=PACE)
        made = Soak(client, pool, kept)
        lanes = [asyncio.create_task(made.lane()) for _ in range(at_once)]
        killer = asyncio.create_task(made.kill(pause or (lambda: made.grown(at_once))))
        sampler = asyncio.create_task(made.sample())
        ended = asyncio.ensure_future(enough(made))
        await asyncio.wait([ended, killer, sampler, *lanes], return_when=asyncio.FIRST_COMPLETED)
        made.stop()
        await asyncio.gather(ended, killer, sampler, *lanes)
        return made
