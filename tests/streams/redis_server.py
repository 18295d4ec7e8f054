"""A Redis of the tests' own: the real server, on a free port, without files."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from typing import Self

from perdure.testing.postgres import free_port
from tests.pooler import PLACES


def program() -> str | None:
    """Where Redis is on this machine, or None."""
    return shutil.which("redis-server", path=os.pathsep.join(PLACES))


class RedisServer:
    """One Redis server, started when it is entered."""

    def __init__(self) -> None:
        self.port = free_port()
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of its first database."""
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        found = program()
        assert found is not None
        settings = ("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
        self._child = subprocess.Popen([found, *settings], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, cwd="/")
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                return
            except ConnectionRefusedError:
                try:
                    self._child.wait(0.02)
                except subprocess.TimeoutExpired:
                    continue
                break
        raise RuntimeError("Redis did not come up")

    def stop(self) -> None:
        """End it, with all that it holds."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None
