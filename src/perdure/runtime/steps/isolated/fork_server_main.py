"""What runs in the fork server: it waits for orders, and each fork of it is a cell.

Started by :mod:`perdure.runtime.steps.isolated.fork_server` with the file descriptor of its end of the channel. It
imports nothing of the application, and starts no thread: those would not be there in a fork.
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
import sys
import time
from contextlib import suppress

from perdure.runtime.steps.isolated.child_main import live
from perdure.runtime.steps.isolated.fork_server import ALIVE, NUMBER_BYTES, UNKNOWN, exactly

FILES = 4
"""What comes with an order: a cell's channel, lifeline, stderr and stdout."""


def serve(channel: socket.socket) -> tuple[list[int], bytes]:
    """Fork a cell for each order; returns only in cells, with files and order. It ends when the worker hangs up."""
    channel.settimeout(None)
    front_door = sys.modules["perdure"]
    for name in front_door.__all__:
        getattr(front_door, name)  # what applications import is there, also what the library would import late
    gc.freeze()  # else the collector would write into what the cells share
    while True:
        with suppress(ConnectionError):
            cell = _ordered(channel)
            if cell is None:
                continue
            channel.close()
            return cell
        os._exit(0)


def _ordered(channel: socket.socket) -> tuple[list[int], bytes] | None:
    """Carry out the next order; in a cell that was forked for it, what was ordered. ConnectionError: no more orders."""
    head, files, flags, _ = socket.recv_fds(channel, NUMBER_BYTES, FILES)
    if not head or flags & socket.MSG_CTRUNC:  # in want of descriptors it has lost some: a new server has them all
        raise ConnectionError
    number = int.from_bytes(head + exactly(channel, NUMBER_BYTES - len(head)), "big")
    if not files:
        answer = _reaped(number)
    else:
        order = exactly(channel, number)
        answer = _forked()
        if answer == 0:
            return files, order
        for file in files:
            os.close(file)
    channel.sendall(answer.to_bytes(NUMBER_BYTES, "big", signed=True))
    return None


def _reaped(pid: int) -> int:
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return UNKNOWN
    return os.waitstatus_to_exitcode(status) if ended else ALIVE


def _forked() -> int:
    """The pid of a cell, which leads its group already; 0 in the cell; a negative errno if the system refuses it."""
    try:
        ready, leads = os.pipe()
    except OSError as error:
        return -(error.errno or 1)
    try:
        pid = os.fork()
    except OSError as error:
        pid = -(error.errno or 1)
    if pid == 0:
        os.setsid()
    os.close(leads)
    if pid > 0:
        os.read(ready, 1)  # until the cell has closed it, or is dead: a kill before would not find its group
    os.close(ready)
    return pid


def become(files: list[int], order: bytes) -> tuple[int, int, list[str]]:
    """Take over the worker's streams, folder, environment and import path; the cell's channel, lifeline and sources."""
    channel, lifeline, *streams = files
    for stream, standard in zip(streams, (2, 1), strict=True):
        os.dup2(stream, standard)
        os.close(stream)
    folder, number, *words = order.split(b"\0")
    sources, lines = words[: int(number)], words[int(number) :]
    os.environ.clear()
    for line in lines:
        name, _, value = line.partition(b"=")
        os.environb[name] = value
    with suppress(OSError):
        os.chdir(folder)
    time.tzset()
    known = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.path[:] = [*known, *(entry for entry in sys.path if entry not in known)]
    importlib.invalidate_caches()
    return channel, lifeline, [os.fsdecode(source) for source in sources]


if __name__ == "__main__":
    live(*become(*serve(socket.socket(fileno=int(sys.argv[1])))))
