"""A crew of worker OS processes: started, asked for figures, killed, replaced, and none of them left at the end."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.load.program import FOLDER
from tests.source import PYTHONPATH, ROOT

LIMIT = 600.0
"""Seconds after which something has failed; nothing waits for this long when all is well."""


class Member:
    """One worker OS process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def said(self, word: str) -> str:
        """Read what it prints until a line begins with ``word``; the rest of that line."""
        assert self._process.stdout is not None
        async with asyncio.timeout(LIMIT):
            while raw := await self._process.stdout.readline():
                first, _, rest = raw.decode().strip().partition(" ")
                if first == word:
                    return rest
        raise AssertionError(f"the worker ended (code {self._process.returncode}) and never said {word!r}")

    def tell(self, word: str) -> None:
        """Write a line to it."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())

    async def figures(self) -> dict[str, Any]:
        """What it has counted so far."""
        self.tell("figures")
        found: dict[str, Any] = json.loads(await self.said("figures"))
        return found

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    @property
    def code(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._process.returncode

    @property
    def pid(self) -> int:
        return self._process.pid

    def held(self) -> Held:
        """What it has of the system."""
        return held(self._process.pid)

    async def kill(self) -> None:
        """SIGKILL."""
        if self.alive:
            self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        """Have it stop in its own time, and wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), LIMIT)


class Pool:
    """The workers on one database."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.members: list[Member] = []

    async def start(self, program: str = "worker", **orders: Any) -> Member:
        """Start a worker; it may not be ready yet. Its orders are those of ``worker.main``, or of another program."""
        environment = {**os.environ, "PYTHONPATH": PYTHONPATH, FOLDER: str(self.folder)}
        with open(self.folder / "workers.log", "ab") as log:
            member = Member(
                await asyncio.create_subprocess_exec(
                    sys.executable, "-m", f"tests.load.{program}", self.url, json.dumps(orders),
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                    env=environment, cwd=ROOT, limit=1 << 24,
                )
            )  # fmt: skip
        self.members.append(member)
        return member

    async def ready(self, many: int = 1, **orders: Any) -> list[Member]:
        """Start so many workers; they work when this returns."""
        members = [await self.start(**orders) for _ in range(many)]
        for member in members:
            await member.said("ready")
        return members

    async def metrics(self) -> Counter[str]:
        """The sum of what the living have counted."""
        total: Counter[str] = Counter()
        for member in self.members:
            if member.alive:
                total.update((await member.figures())["metrics"])
        return total

    async def asked(self) -> int:
        """How many calls to the store the living have made."""
        found = [sum((await member.figures())["asked"].values()) for member in self.members if member.alive]
        return sum(found)


async def orders() -> asyncio.StreamReader:
    """What a member reads from its parent, line by line."""
    said = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(said), sys.stdin)
    return said


@asynccontextmanager
async def pool_on(url: str, folder: Path) -> AsyncIterator[Pool]:
    """A crew of nobody yet; whoever still works at the end is killed."""
    pool = Pool(url, folder)
    os.environ[FOLDER] = str(folder)
    try:
        yield pool
    finally:
        for member in pool.members:
            await member.kill()


class Held(NamedTuple):
    """What an OS process has of the system: bytes of memory, open files, threads."""

    memory: int
    descriptors: int
    threads: int


def held(pid: int) -> Held:
    """What an OS process has (Linux)."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return Held(1024 * int(status["VmRSS"].split()[0]), len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"]))
