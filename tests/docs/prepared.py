"""A prepared program: ``perdure`` as an OS process of its own for each command, which is forked with all imports done.

A page of the guide gives dozens of commands, and most of what a short one costs is to import the program. Here one OS
process imports it, and is forked for each command. The command has its own arguments, environment, folder, standard
streams and exit code, and is killed if the one who gave it is. Whether the program starts by itself is proved by
``tests/cli`` and ``tests/examples``.
"""

from __future__ import annotations

import array
import marshal
import os
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

READY = b"ready\n"
STREAMS = 3
LENGTH = 8

COMMAND = """
import _socket, marshal, os, signal, sys
place, *words = sys.argv[1:]
link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
link.connect(place)
asked = marshal.dumps((os.getcwdb(), dict(os.environb), words))
streams = b"".join(one.to_bytes(4, sys.byteorder) for one in (0, 1, 2))
link.sendmsg([len(asked).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
while asked:
    asked = asked[link.send(asked):]
pid = int.from_bytes(link.recv(8), "big")
for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(one, lambda number, frame: os.kill(pid, number))
code = os.waitstatus_to_exitcode(int.from_bytes(link.recv(8), "big"))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
"""What is started for each command: it hands everything on, signals too, and ends as the command does."""


@contextmanager
def prepared(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """While inside, a shell runs the program by the line that is given, with arguments behind it."""
    place, command = folder / "prepared.socket", folder / "command.py"
    command.write_text(COMMAND)
    server = subprocess.Popen(
        [sys.executable, __file__, str(place)], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == READY
        yield shlex.join([sys.executable, "-I", "-S", str(command), str(place)])
    finally:
        server.terminate()
        server.communicate()


# -- the OS process that is forked -----------------------------------------------------------------------------------


def serve(place: str) -> tuple[list[str], str]:
    """Fork for each command that arrives; returns only in the OS process that is to carry one out, with its words."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen()
    os.write(1, READY)
    while True:
        link, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return _watched(link)
        link.close()
        _reap()


def _reap() -> None:
    """Take note of those that have ended, so that what they cost is counted."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _watched(link: socket.socket) -> tuple[list[str], str]:
    """Fork once more: this OS process tells what became of the command, the other is the command, and returns."""
    head, streams = _received(link)
    folder, environment, words = marshal.loads(_exactly(link, int.from_bytes(head, "big")))  # noqa: S302 (our own)
    pid = os.fork()
    if pid == 0:
        link.close()
        for number, one in enumerate(streams):
            os.dup2(one, number)
            os.close(one)
        os.environ.clear()
        os.environb.update(environment)
        os.chdir(folder)
        return words, os.fsdecode(folder)
    for one in streams:
        os.close(one)
    for one in range(STREAMS):
        os.close(one)  # else whoever reads what the command prints would wait for this one's end
    link.sendall(pid.to_bytes(LENGTH, "big"))
    threading.Thread(target=_kill_with_its_giver, args=(link, pid), daemon=True).start()
    _, status = os.waitpid(pid, 0)
    link.sendall(status.to_bytes(LENGTH, "big"))
    os._exit(0)


def _kill_with_its_giver(link: socket.socket, pid: int) -> None:
    """The one who gave the command says nothing more: the connection ends when that OS process does."""
    if not link.recv(1):
        os.kill(pid, signal.SIGKILL)


def _received(link: socket.socket) -> tuple[bytes, array.array[int]]:
    streams = array.array("i")
    head, extra, _, _ = link.recvmsg(LENGTH, socket.CMSG_SPACE(STREAMS * streams.itemsize))
    for _level, _kind, data in extra:
        streams.frombytes(data)
    return head, streams


def _exactly(link: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        found += link.recv(length - len(found))
    return found


def _import() -> None:
    """Everything that commands import, also what they import late."""
    import asyncio.runners  # noqa: F401
    import sqlite3  # noqa: F401

    import perdure.runtime.worker  # noqa: F401
    from perdure.cli.app import whole_app
    from perdure.store.sqlite import store  # noqa: F401

    whole_app()


def main(place: str) -> Any:
    """Serve; in an OS process that is to carry out a command, do that as ``python -m perdure`` does."""
    _import()
    words, folder = serve(place)
    sys.argv = ["perdure", *words]
    sys.path[0] = folder
    runpy.run_module("perdure", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1])
