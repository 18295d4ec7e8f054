"""Two PostgreSQL clusters on one machine: a primary, and a standby that can take its place."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg

from perdure.testing.postgres import Server, at_once, free_port, unprivileged
from tests.kill.harness import LIMIT


class Standby(Server):
    """A server made from a base backup of another one, which it follows until it is promoted."""

    def __init__(self, primary: Server, port: int) -> None:
        super().__init__(primary.settings)
        self.port = port
        self._primary = primary

    def __enter__(self) -> Self:
        self.home = Path(tempfile.mkdtemp(prefix="perdure-postgres-"))
        user = unprivileged()
        if user:
            os.chown(self.home, user["user"], user["group"])
        self.programs = self._primary.programs
        command = [self.programs / "pg_basebackup", "-D", self.home / "cluster", "-h", "127.0.0.1"]
        command += ["-p", str(self._primary.port), "-U", "perdure", "-R", "-X", "stream", "-c", "fast", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, cwd=self.home, **user)
        self.start()
        return self


class Pair:
    """A primary and its standby, on two fixed ports; the URL names both, and whoever may be written to is meant."""

    def __init__(self, *, synchronous: bool, settings: Iterable[str] = ()) -> None:
        self.synchronous = synchronous
        self.primary = Server(settings)
        self.other_port = free_port()
        self.dead: Server | None = None

    def __enter__(self) -> Self:
        self.primary.__enter__()
        try:
            self.follow()
        except BaseException:
            self.primary.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bury()
        for server in {self.standby, self.primary}:
            server.__exit__(None, None, None)

    def _bury(self) -> None:
        dead, self.dead = self.dead, None
        if dead is not None:
            dead.__exit__(None, None, None)

    def url(self, database: str) -> str:
        """The address of a database on whichever of the two is the primary."""
        ports = sorted((self.primary.port, self.other_port))
        return f"postgresql://perdure@127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/{database}"

    def follow(self) -> None:
        """Make a new standby of the primary; a synchronous one holds up every commit until it has it."""
        self._bury()
        self.standby = Standby(self.primary, self.other_port)
        self.standby.__enter__()
        if self.synchronous:
            self.primary.execute("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'")
            self.primary.execute("postgres", "SELECT pg_reload_conf()")
            at_once(self._synchronous)

    async def _synchronous(self) -> None:
        async with asyncio.timeout(LIMIT):
            while await self._asked(self.primary, "SELECT sync_state FROM pg_stat_replication") != "sync":
                await asyncio.sleep(0.01)

    def sever(self) -> None:
        """Let the standby have all that there is, then cut it off: from now on it gets nothing (asynchronous only)."""
        at_once(self._caught_up)
        self.standby.execute("postgres", "ALTER SYSTEM SET primary_conninfo = ''")
        self.standby.execute("postgres", "SELECT pg_reload_conf()")
        at_once(self._alone)

    async def _caught_up(self) -> None:
        written = await self._asked(self.primary, "SELECT pg_current_wal_insert_lsn()::text")
        behind = f"SELECT pg_last_wal_replay_lsn() < '{written}'::pg_lsn"
        async with asyncio.timeout(LIMIT):
            while await self._asked(self.standby, behind):
                await asyncio.sleep(0.01)

    async def _alone(self) -> None:
        async with asyncio.timeout(LIMIT):
            while await self._asked(self.primary, "SELECT count(*) FROM pg_stat_replication"):
                await asyncio.sleep(0.01)

    async def _asked(self, server: Server, sql: str) -> Any:
        connection = await asyncpg.connect(server.url("postgres"))
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    def fail_over(self) -> None:
        """Kill the primary and promote the standby in its place."""
        dead = self.primary
        dead.stop(signal.SIGKILL)
        self.standby._made = dead._made
        self.standby.execute("postgres", "SELECT pg_promote()")
        self.primary, self.other_port, self.dead = self.standby, dead.port, dead
