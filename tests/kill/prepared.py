"""Victims: OS processes forked from a prepared one, which has imported the engine already.

A fresh program spends half a second of processor time on its imports before it does anything, and these tests start
hundreds. So one OS process imports what they need, once for each program of tests, and is forked for each victim. The
victim then runs its module as ``python -m`` does, with arguments, environment and standard streams of its own. It has
an exit code, and may be killed or stopped as any other. That it is as a fresh program in all that matters here is
proved by ``test_prepared.py``; whether programs start by themselves, by ``tests/cli``. Only ``$PERDURE_PAYLOAD_BYTES``
and its like, which are read by the import itself, are those of the prepared program.
"""

from __future__ import annotations

import array
import asyncio
import atexit
import gc
import importlib
import marshal
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
"""What is set in the environment of each OS process that the tests start here."""
IMPORTED = (
    "perdure.cli.app",
    "perdure.cli.worker",
    "perdure.runtime.worker",
    "perdure.store.postgres.store",
    "perdure.store.sqlite.store",
    "perdure.testing.faults",
)
"""Everything that victims import, also what they import late; no module of theirs, so that each hosts its own."""
LENGTH = 8
SOCKET = socket.SOL_SOCKET, socket.SCM_RIGHTS


class Victim:
    """A forked OS process, as :class:`asyncio.subprocess.Process` shows one; its output is read by ``stdout``."""

    def __init__(self, pid: int, link: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: asyncio.StreamReader | None = None
        self._output: asyncio.BaseTransport | None = None
        self._end = asyncio.create_task(self._until_its_end(link, writer))

    async def _until_its_end(self, link: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        try:
            status = await link.readexactly(LENGTH)
        except asyncio.IncompleteReadError:
            raise RuntimeError("the prepared program has ended, and its victims with it") from None
        finally:
            writer.close()
        self.returncode = os.waitstatus_to_exitcode(int.from_bytes(status, "big"))
        return self.returncode

    async def hear(self, output: int) -> None:
        """Read what it prints from this pipe."""
        loop = asyncio.get_running_loop()
        self.stdout = asyncio.StreamReader(loop=loop)
        reader = asyncio.StreamReaderProtocol(self.stdout, loop=loop)
        self._output, _ = await loop.connect_read_pipe(lambda: reader, os.fdopen(output, "rb", 0))

    async def wait(self) -> int:
        """Wait for its end; the exit code, below zero if a signal has killed it."""
        return await asyncio.shield(self._end)

    def send_signal(self, number: int) -> None:
        """Send it a signal; raises ProcessLookupError if it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it by SIGKILL; raises ProcessLookupError if it has ended."""
        self.send_signal(signal.SIGKILL)

    async def close(self) -> None:
        """Kill it if it still runs, and let go of its output, which a child of its own may still hold."""
        with suppress(ProcessLookupError):
            self.kill()
        await self.wait()
        if self._output is not None:
            self._output.close()


async def victim(module: str, *arguments: str, output: int | None = None, errors: int | None = None) -> Victim:
    """Fork an OS process that runs a module; it prints into the file ``output``, or for its :attr:`Victim.stdout`."""
    pipe, printed = (None, output) if output is not None else os.pipe()
    ours, theirs = socket.socketpair()
    try:
        asked = marshal.dumps(({**os.environ, **ENVIRONMENT}, [module, *arguments]))
        streams = array.array("i", [theirs.fileno(), printed, sys.__stderr__.fileno() if errors is None else errors])
        prepared().sendmsg([len(asked).to_bytes(LENGTH, "big")], [(*SOCKET, streams)])
        prepared().sendall(asked)
    finally:
        theirs.close()
        if pipe is not None:
            os.close(printed)
    reader, writer = await asyncio.open_connection(sock=ours)
    made = Victim(int.from_bytes(await reader.readexactly(LENGTH), "big"), reader, writer)
    if pipe is not None:
        await made.hear(pipe)
    return made


_link: socket.socket | None = None


def prepared() -> socket.socket:
    """The way to the prepared program of these tests, which ends with them; it is started when first asked for."""
    global _link
    if _link is None:
        _link, theirs = socket.socketpair()
        with theirs:
            started = subprocess.Popen(
                [sys.executable, "-m", "tests.kill.prepared"], stdin=theirs.fileno(), stdout=subprocess.DEVNULL,
                env={**os.environ, **ENVIRONMENT}, cwd=ROOT,
            )  # fmt: skip
        atexit.register(_end, _link, started)
    return _link


def _end(link: socket.socket, started: subprocess.Popen[bytes]) -> None:
    link.close()
    started.wait()


# -- the prepared program, and what is forked from it ----------------------------------------------------------------


def serve(link: socket.socket) -> list[str]:
    """Fork for each victim that is asked for; returns only in a victim, with its module and arguments."""
    ours, theirs = socket.socketpair()
    for one in (ours, theirs):
        one.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, whose end ends this program
    signal.set_wakeup_fd(theirs.fileno())
    living: dict[int, socket.socket] = {}
    while True:
        readable, _, _ = select.select([link, ours], [], [])
        if ours in readable:
            ours.recv(4096)
            _tell_ends(living)
        if link in readable:
            environment, words, told, streams = _asked(link, living)
            if (pid := os.fork()) == 0:
                for one in (link, ours, theirs, told, *living.values()):
                    one.close()
                signal.signal(signal.SIGINT, interrupted)
                _become(environment, streams)
                return words
            for stream in streams:
                os.close(stream)
            living[pid] = told
            told.sendall(pid.to_bytes(LENGTH, "big"))


def _tell_ends(living: dict[int, socket.socket]) -> None:
    """Tell of each victim that has ended how it has."""
    while living:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with living.pop(pid) as told:
            told.sendall(status.to_bytes(LENGTH, "big"))


def _asked(
    link: socket.socket, living: Mapping[int, socket.socket]
) -> tuple[dict[str, str], list[str], socket.socket, list[int]]:
    """Read what the next victim is to be, and its files; ends with its victims when nobody can ask any more."""
    files = array.array("i")
    head, extra, _, _ = link.recvmsg(LENGTH, socket.CMSG_SPACE(3 * files.itemsize))
    if not head:
        for pid in living:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)  # so that what it has cost is counted
        sys.exit()
    for _level, _kind, numbers in extra:
        files.frombytes(numbers)
    wanted, found = int.from_bytes(head, "big"), b""
    while len(found) < wanted:
        found += link.recv(wanted - len(found))
    environment, words = marshal.loads(found)  # noqa: S302 (our own)
    told, *streams = files
    return environment, words, socket.socket(fileno=told), streams


def _become(environment: Mapping[str, str], streams: list[int]) -> None:
    """Be as a program that has just been started: environment and streams of its own, and no signal handlers."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, one in enumerate((nothing, *streams)):
        os.dup2(one, number)
        os.close(one)


def main() -> None:
    """Serve; in a victim, run its module as ``python -m`` does."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    link = socket.socket(fileno=os.dup(0))
    module, *arguments = serve(link)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
