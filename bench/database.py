"""Throw-away databases, fresh for each run, on a PostgreSQL of our own; and what OS processes use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg

from perdure.testing.postgres import Server


class Cluster(Server):
    """The tests' PostgreSQL server (default settings, fsync on), and what the benchmarks ask of it."""

    def __init__(self, settings: Sequence[str] = ()) -> None:
        super().__init__(settings)
        self.made = 0

    def __enter__(self) -> Cluster:
        super().__enter__()
        return self

    def database(self) -> str:
        """Create a fresh database and answer its name."""
        self.made += 1
        name = f"bench{self.made}"
        self.run("postgres", f"CREATE DATABASE {name}")
        return name

    def drop(self, name: str) -> None:
        """Remove a database, whoever is still connected."""
        self.run("postgres", f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def run(self, name: str, *statements: str) -> None:
        """Run statements one by one."""

        async def work() -> None:
            connection = await asyncpg.connect(self.url(name))
            try:
                for statement in statements:
                    await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(work())

    def fetch(self, name: str, query: str, *values: Any) -> list[Any]:
        """The rows of a query."""

        async def work() -> list[Any]:
            connection = await asyncpg.connect(self.url(name))
            try:
                return list(await connection.fetch(query, *values))
            finally:
                await connection.close()

        return asyncio.run(work())

    def version(self) -> str:
        """The server's version, short."""
        return str(self.fetch("postgres", "SHOW server_version")[0][0]).split()[0]

    def cpu_seconds(self) -> float:
        """CPU time that the server's processes have used, those included that have ended."""
        return cpu_of_family(self.pid) + _cpu_of(self.pid, ended=True)


def family(root: int) -> list[int]:
    """An OS process and all its descendants, by their ids."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found, open_ends = [], [root]
    while open_ends:
        one = open_ends.pop()
        found.append(one)
        open_ends += parents.get(one, [])
    return found


def _cpu_of(pid: int, *, ended: bool = False) -> float:
    """CPU seconds of one OS process; or of its children that have ended."""
    try:
        parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return sum(map(int, parts[13:15] if ended else parts[11:13])) / os.sysconf("SC_CLK_TCK")


def cpu_of_family(root: int) -> float:
    """CPU seconds used so far by an OS process and its living descendants."""
    return sum(_cpu_of(pid) for pid in family(root))


def rss_of_family(root: int) -> float:
    """Resident MiB of an OS process and its living descendants."""
    total = 0
    for pid in family(root):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    return total / 1024
