"""Two PostgreSQL clusters on one machine: a primary, and a standby that can take its place."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import asyncpg

from perdure.testing.postgres import Server, at_once, free_port, unprivileged
from tests.kill.crime import LIMIT


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

    def __init__(self, *, synchronous: bool) -> None:
        self.synchronous = synchronous
        self.primary = Server()
        self.other_port = free_port()

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
        self.standby.__exit__(None, None, None)
        self.primary.__exit__(None, None, None)

    def url(self, database: str) -> str:
        """The address of a database on whichever of the two is the primary."""
        ports = sorted((self.primary.port, self.other_port))
        return f"postgresql://perdure@127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/{database}"

    def follow(self) -> None:
        """Make a new standby of the primary; a synchronous one holds up every commit until it has it."""
        self.standby = Standby(self.primary, self.other_port)
        self.standby.__enter__()
        if self.synchronous:
            self.primary.execute("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'")
            self.primary.execute("postgres", "SELECT pg_reload_conf()")
            at_once(self._synchronous)

    async def _synchronous(self) -> None:
        connection = await asyncpg.connect(self.primary.url("postgres"))
        try:
            async with asyncio.timeout(LIMIT):
                while await connection.fetchval("SELECT sync_state FROM pg_stat_replication") != "sync":
                    await asyncio.sleep(0.01)
        finally:
            await connection.close()

    def sever(self) -> None:
        """Cut the standby off: from now on it gets nothing (asynchronous only)."""
        self.standby.execute("postgres", "ALTER SYSTEM SET primary_conninfo = ''")
        self.standby.execute("postgres", "SELECT pg_reload_conf()")

    def fail_over(self) -> None:
        """Kill the primary and promote the standby in its place; of the dead one nothing stays."""
        dead = self.primary
        dead.stop(signal.SIGKILL)
        self.standby.execute("postgres", "SELECT pg_promote()")
        self.primary, self.other_port = self.standby, dead.port
        dead.__exit__(None, None, None)
