"""A rolling upgrade with the real workers of a release, made of its own source, beside today's, under kills.

The source comes out of the repository's own history: without it (a shallow clone, a download) none of this can be run.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from bench.commit import source_of
from perdure import Engine, Handle
from tests.source import ROOT, SOURCE
from tests.upgrade import flow, hand
from tests.upgrade.release import FOLDER

NAMES = ["Ann", "Ben", "Cid"]
LIMIT = 60.0
"""Seconds within which everything has ended. Of an overlooked signal it may take some rounds of the sweep."""


def source(release: str, folder: Path) -> Path | None:
    """The package of a release as it was, unpacked in this folder; None without the history of the repository."""
    return source_of((FOLDER / release / "commit").read_text().strip(), folder)


class Fleet:
    """Workers on one database: old ones and one of today, by names whose first word says which."""

    def __init__(self, url: str, old: Path, folder: Path) -> None:
        self.url = url
        self.sources = {"old": old, "new": Path(SOURCE)}
        self.workers: dict[str, asyncio.subprocess.Process] = {}
        self._errors = folder / "workers.log"

    async def begin(self, which: str) -> None:
        """Start a worker, and wait until it works; with the code that it was to have."""
        source = str(self.sources[which.split()[0]])
        path = os.pathsep.join([source, str(ROOT)])
        with open(self._errors, "a") as errors:
            child = await asyncio.create_subprocess_exec(
                sys.executable, hand.__file__, self.url,
                stdout=asyncio.subprocess.PIPE, stderr=errors, env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
        self.workers[which] = child
        assert child.stdout is not None
        said = (await child.stdout.readline()).decode()
        assert said.startswith(source), (said, self._errors.read_text()[-2000:])

    async def kill(self, which: str) -> None:
        """End one by SIGKILL, if it is there."""
        child = self.workers.pop(which)
        assert child.returncode is None, f"the {which} worker has ended by itself:\n{self._errors.read_text()[-2000:]}"
        child.kill()
        await child.wait()

    async def end(self) -> None:
        """Kill those that are left."""
        for which in list(self.workers):
            await self.kill(which)


class Batch:
    """Processes of each kind, and what each is to come to."""

    def __init__(self, client: Engine) -> None:
        self.client = client
        self.all: list[tuple[Handle[Any], object]] = []
        self.hearing: list[tuple[Handle[Any], int]] = []

    async def begin(self, count: int) -> None:
        """Start so many of each kind; names come while those that hear wait for another signal."""
        for number in range(count):
            self.all.append((await self.client.start(flow.sleeper), ["before the night", "after it"]))
            self.all.append((await self.client.start(flow.task, f"{number}"), f"{number}"))
            listener, renewed = await self.client.start(flow.listener), await self.client.start(flow.renewed, 2, [])
            for handle, goes in ((listener, 1), (renewed, 3)):
                self.all.append((handle, NAMES))
                self.hearing.append((handle, goes))
                for name in NAMES:
                    await handle.signal("name", name)

    async def heard(self) -> None:
        """Wait until somebody has heard all names, and has let their processes rest."""

        async def rest() -> bool:
            rows = [await self.client.row(handle.id_bytes) for handle, _ in self.hearing]
            return all(row.seen == row.inbox and row.owner is None for row in rows)

        await _until(rest)

    async def go(self, part: slice) -> None:
        """Let some of those that hear go on: now they want the names."""
        for handle, goes in self.hearing[part]:
            for _ in range(goes):
                await handle.signal("go")

    async def end(self) -> list[str]:
        """What did not come to its right end in time.

        Names may come in another order: an old worker tells first of what it has heard itself.
        """
        wrong = []
        for handle, want in self.all:
            try:
                got = await handle.result(timeout=LIMIT)
            except TimeoutError:
                view = await handle.status()
                wrong.append(f"{view.kind} {view.id} is {view.status} and waits for {view.waiting}")
                continue
            if isinstance(got, list) and want is NAMES:
                got = sorted(got)
            if got != want:
                wrong.append(f"{handle.id} came to {got!r}, not to {want!r}")
        return wrong


async def rolled(url: str, old: Path, folder: Path, *, rounds: int = 2, count: int = 3) -> tuple[int, Sequence[str]]:
    """Play it; how many processes there were, and what was wrong.

    Old workers make the database, which is upgraded under them. In each round one worker is killed while signals are
    sent: first an old one, which this schema would not let begin again, then the new one, again and again. At the end
    an old one and the new one live.
    """
    fleet = Fleet(url, old, folder)
    try:
        for which in ("old one", "old two"):
            await fleet.begin(which)
        async with Engine(url, migrate=True) as client:
            batches = [Batch(client)]
            await batches[0].begin(count)
            await fleet.begin("new")
            for number in range(rounds):
                batch = batches[-1]
                await batch.heard()
                half = len(batch.hearing) // 2
                await batch.go(slice(half))
                victim = "new" if number else "old one"
                await fleet.kill(victim)
                batches.append(Batch(client))
                await batches[-1].begin(count)
                await batch.go(slice(half, None))
                if victim == "new":
                    await fleet.begin(victim)
            await batches[-1].heard()
            await batches[-1].go(slice(None))
            wrong = [text for batch in batches for text in await batch.end()]
            return sum(len(batch.all) for batch in batches), wrong
    finally:
        await fleet.end()


async def _until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT):
        while not await true():
            await asyncio.sleep(0.02)
