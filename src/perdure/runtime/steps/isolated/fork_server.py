"""The fork server as its workers see it: an OS process of which each cell is a copy, made by a fork.

A cell that starts as a fresh interpreter spends some tenths of a second on importing this library. The fork server has
imported it, and nothing of the application: it has no thread, no connection and no lock, so that a fork of it is as
good as a fresh interpreter. All workers of a program share one. It is started for the first cell, and ends with the
last of these workers, or with the program.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from threading import Event, Lock

from perdure.clock import blocking_pair
from perdure.runtime.os_process import inherited_environment

WITHHELD = frozenset({"PERDURE_URL", "PERDURE_SEAL"})
"""Withheld from steps, which do not need it: the store's URL with its password, and what opens the payloads."""
NUMBER_BYTES = 8
ALIVE, UNKNOWN = 10**6, -(10**6)
"""The answers about a cell that is not dead yet, and about one that another server has forked."""
DYING_SECONDS = 0.002


class ForkServer:
    """Forks cells, and tells how each of them has ended. Any thread may call its methods."""

    def __init__(self) -> None:
        self.users = 0
        self.program = os.getpid()
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def fork(self, files: Sequence[int], sources: Sequence[str]) -> int:
        """Start a cell, the leader of a session and process group of its own; its pid. OSError: the system refuses.

        ``files`` are its end of the channel, that of the lifeline, and its stderr.
        """
        environment = {name: value for name, value in inherited_environment().items() if name not in WITHHELD}
        words = [_folder(), str(len(sources)), *sources, *(f"{name}={value}" for name, value in environment.items())]
        order = b"\0".join(map(os.fsencode, words))
        with self._lock, ExitStack() as handed:
            stdout = _stdout()
            handed.callback(os.close, stdout)
            if self._channel is not None:
                with suppress(ConnectionError):  # killed by somebody: the next one does it
                    return _forked(self._channel, order, [*files, stdout])
                self._end()
            return _forked(self._start(environment), order, [*files, stdout])

    def reap(self, pid: int) -> int:
        """Wait for a cell that was killed or has ended; its exit code, negative for a signal."""
        while (code := self._look(pid)) == ALIVE:
            Event().wait(DYING_SECONDS)  # not in the server: a cell that the system cannot end would hold up all others
        return -signal.SIGKILL if code == UNKNOWN else code  # killed at the latest by its worker

    def _look(self, pid: int) -> int:
        with self._lock, suppress(OSError):
            if self._channel is not None:
                self._channel.sendall(_number(pid))
                return _answer(self._channel)
        return UNKNOWN

    def close(self) -> None:
        """End the server; no cell ends by that."""
        with self._lock:
            self._end()

    def _start(self, environment: Mapping[str, str]) -> socket.socket:
        ours, theirs = blocking_pair()
        with ExitStack() as undo, theirs:
            undo.callback(ours.close)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{__name__}_main", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=environment,
            )
            undo.pop_all()
        self._channel = ours
        return ours

    def _end(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._channel = self._process = None


def _folder() -> str:
    """The current folder; "", in which a cell stays where its server was started, if it was removed."""
    with suppress(OSError):
        return os.getcwd()
    return ""


def _stdout() -> int:
    """Where a cell writes what it prints: where this program does; nowhere if that is closed."""
    with suppress(OSError):
        return os.dup(1)
    return os.open(os.devnull, os.O_WRONLY)


def _number(value: int) -> bytes:
    return value.to_bytes(NUMBER_BYTES, "big", signed=True)


def _forked(channel: socket.socket, order: bytes, files: Sequence[int]) -> int:
    socket.send_fds(channel, [_number(len(order))], files)
    channel.sendall(order)
    pid = _answer(channel)
    if pid < 0:
        raise OSError(-pid, f"fork: {os.strerror(-pid)}")
    return pid


def _answer(channel: socket.socket) -> int:
    return int.from_bytes(exactly(channel, NUMBER_BYTES), "big", signed=True)


def exactly(channel: socket.socket, length: int) -> bytes:
    """So many bytes; ConnectionError if the other end is gone before."""
    found = bytearray()
    while len(found) < length:
        received = channel.recv(length - len(found))
        if not received:
            raise ConnectionError("the other end is gone")
        found += received
    return bytes(found)


_shared = ForkServer()
_counting = Lock()


def attach() -> ForkServer:
    """The server of this program, for one worker more; nothing is started before its first cell."""
    global _shared
    with _counting:
        if _shared.program != os.getpid():  # a fork of the program that has it
            _shared = ForkServer()
        _shared.users += 1
        return _shared


def detach(server: ForkServer) -> None:
    """A worker needs it no more: after the last one it ends, until another cell is wanted."""
    with _counting:
        server.users -= 1
        if server.users == 0 and server.program == os.getpid():
            server.close()
