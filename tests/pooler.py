"""A PgBouncer in front of the tests' server: in transaction mode, or in session mode."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from perdure.testing.postgres import Server, free_port, unprivileged

PLACES = (os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")


def program() -> str | None:
    """Where PgBouncer is on this machine, or None."""
    return shutil.which("pgbouncer", path=os.pathsep.join(PLACES))


TRANSACTION = ("pool_mode = transaction", "default_pool_size = 6")
"""Few sessions of the server, so that none is ever one's own."""


class Pooler:
    """One PgBouncer, in transaction mode unless ``mode`` has other lines of its settings.

    ``first`` is what each session of the server begins with, in SQL.
    """

    def __init__(self, server: Server, mode: Sequence[str] = TRANSACTION, first: str = "SELECT") -> None:
        self.server = server
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-pooler-"))
        users = self.folder / "users.txt"
        users.write_text('"perdure" ""\n"engine" ""\n')
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port} connect_query='{first}'\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {users}\nmax_client_conn = 200\n"
            "ignore_startup_parameters = extra_float_digits,options\n" + "\n".join(mode)
        )
        user = unprivileged()
        for path in (self.folder, users, settings) if user else ():
            os.chown(path, user["user"], user["group"])
        found = program()
        if found is None:
            raise LookupError("PgBouncer was not found; on Debian and Ubuntu: apt-get install pgbouncer")
        self.log = (self.folder / "pooler.log").open("wb")
        self.worker = subprocess.Popen(
            [found, str(settings)], stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, cwd="/",
            **user,
        )  # fmt: skip
        self._await()

    def _await(self) -> None:
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
            except ConnectionRefusedError:
                try:
                    self.worker.wait(0.02)
                except subprocess.TimeoutExpired:
                    continue
                break
            else:
                return
        raise RuntimeError(f"PgBouncer did not come up: {(self.folder / 'pooler.log').read_text()}")

    def url(self, direct: str) -> str:
        """The URL of a database of the server, by way of the pooler."""
        return direct.partition("?")[0].replace(f":{self.server.port}/", f":{self.port}/") + "?pooler=transaction"

    def remove(self) -> None:
        """Stop it and delete its folder."""
        self.worker.terminate()
        self.worker.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
