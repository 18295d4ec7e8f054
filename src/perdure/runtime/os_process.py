"""The OS process of a worker: its main task runs to its end, and it dies with its parent.

Code in some task may try to end the program; the main task goes on all the same. The lifeline is a socket to the
parent. The system closes the parent's end when the parent dies, however it dies. The child's watchdog writes a byte at
every look: if even that thread does not run, C code keeps the interpreter's lock, and no Python code in the child can
help. A worker without a parent has a timer in C instead, which the watchdog restarts.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from perdure import limits
from perdure.clock import ChildProcess, Linked
from perdure.futures import DaemonThreads
from perdure.logs import logger

T = TypeVar("T")

log = logger("worker")

EXIT_HUNG = 70
"""The exit code of a worker that ended itself because its event loop was blocked until its lease was lost."""


def run(main: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Run ``main`` on an event loop of its own until it has ended; Ctrl-C is for its own signal handlers.

    A task of a step that raises SystemExit or KeyboardInterrupt makes asyncio stop the event loop. The task has failed
    with that error, so the code that awaits it gets the error; the worker goes on. Nor is a call waited for that hangs
    in the threads of this loop (``asyncio.to_thread``).
    """
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        loop = runner.get_loop()
        loop.set_default_executor(DaemonThreads(limits.LOOP_THREADS, "perdure loop"))
        task = loop.create_task(main)
        while not task.done():
            try:
                loop.run_until_complete(task)
            except (KeyboardInterrupt, SystemExit) as error:
                if task.done() and not task.cancelled() and task.exception() is error:
                    raise
                log.error("code in a task raised %s, which does not end this worker", type(error).__name__)
                if task.done():  # uvloop has yet to obey its order to stop, which would cut short what ends the loop
                    with suppress(RuntimeError, KeyboardInterrupt, SystemExit):
                        loop.run_until_complete(asyncio.sleep(0.01))
        return task.result()


AT_ONCE = 130
"""The exit code of an OS process that was told to end at once, or did not end in time."""


def watch_parent(line: int, stop: Callable[[], None], seconds: float) -> None:
    """Call ``stop`` on the running event loop when the parent dies, and end this OS process so many seconds later.

    A thread waits for that, so that a blocked event loop does not keep an orphan alive.
    """
    loop = asyncio.get_running_loop()

    def watch() -> None:
        _until_hung_up(line)
        try:
            loop.call_soon_threadsafe(stop)
        except RuntimeError:
            return  # the event loop is closed: this OS process is ending
        last_resort(seconds)

    threading.Thread(target=watch, name="perdure lifeline", daemon=True).start()


def _until_hung_up(line: int) -> None:
    """Wait until the other end is closed. Only that is the parent's death, whether or not the socket blocks."""
    readable = select.poll()
    readable.register(line, select.POLLIN)
    with suppress(ConnectionError):  # a reset: the parent died before it had read all that we wrote
        while True:
            readable.poll()
            with suppress(BlockingIOError):
                if not os.read(line, 64):
                    return


def last_resort(seconds: float, code: int = AT_ONCE) -> None:
    """End this OS process after so many seconds, whatever it does then; called from a thread of its own."""
    threading.Event().wait(seconds)
    os._exit(code)


def signs(line: int) -> Callable[[], None]:
    """A function that tells the parent that the interpreter runs; it does not wait for a parent that does not read."""
    end = socket.fromfd(line, socket.AF_UNIX, socket.SOCK_STREAM)
    end.setblocking(True)  # it is the same socket for the thread that reads it

    def sign() -> None:
        with suppress(OSError):  # it is full, or the parent is gone
            end.send(b".", socket.MSG_DONTWAIT)

    return sign


class Fuse:
    """Ends this OS process, and prints the stacks of all threads, when it was not put off for so many seconds.

    Its timer is a C thread that does not need the interpreter's lock. An OS process can have only one such timer, so
    our own programs use it, and the library inside an application never does. Time in which the OS process was stopped
    counts.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._out = 2 if sys.__stderr__ is not None else os.open(os.devnull, os.O_WRONLY)

    def put_off(self) -> None:
        """Restart the timer: the interpreter runs."""
        with suppress(RuntimeError):  # the system refuses the thread just now: the next look tries again
            faulthandler.dump_traceback_later(self.seconds, exit=True, file=self._out)

    def take_away(self) -> None:
        """Stop the timer."""
        faulthandler.cancel_dump_traceback_later()


def hearing(end: socket.socket) -> Callable[[], bytes]:
    """A function that returns what the other end has written since the last call, without waiting for more."""
    end.setblocking(False)

    def heard() -> bytes:
        try:
            return end.recv(4096)
        except OSError:
            return b""

    return heard


def patience(lease: float, beat: float) -> float:
    """Seconds of silence after which a child is killed: before a sweep finds it silent, since a death is evidence."""
    return lease - beat - min(limits.LEASE_MARGIN_SECONDS, lease / 4)


async def minded(child: ChildProcess, seconds: float, up: Callable[[], None]) -> int:
    """Wait for the end of a child; one with a lifeline is killed when its interpreter no longer runs.

    ``up`` is called at its first sign of life, or at once if it gives none.
    """
    if not isinstance(child, Linked):
        up()
        return await child.wait()
    with child.line:
        minding = asyncio.create_task(_mind(child, seconds, up))
        try:
            return await child.wait()
        finally:
            minding.cancel()
            await asyncio.wait([minding])


async def _mind(child: Linked, seconds: float, up: Callable[[], None]) -> None:
    heard = hearing(child.line)
    if await asyncio.get_running_loop().sock_recv(child.line, 1):
        up()
        await mind(child.pid, heard, child.kill, seconds)


async def mind(pid: int, heard: Callable[[], bytes], kill: Callable[[], None], seconds: float) -> None:
    """Kill a child that has given a sign of life and is then silent for so many seconds; ``heard`` reads the signs.

    Time in which the parent did not look does not count: it may have been stopped, or its machine paused.
    """
    pause = min(1.0, seconds / 8)
    silent = 0.0
    loop = asyncio.get_running_loop()
    looked = loop.time()
    while True:
        await asyncio.sleep(pause)
        since, looked = min(loop.time() - looked, 2 * pause), loop.time()
        silent = 0.0 if heard() or stopped(pid) else silent + since
        if silent > seconds:
            log.error(
                "worker %d is stuck: not even its watchdog has run for %.0f s, so C code keeps the interpreter's lock. "
                "It is killed, and other workers go on with its processes. Make such a call a hard step",
                pid, silent,
            )  # fmt: skip
            kill()
            return


def stopped(pid: int) -> bool:
    """Whether an OS process was stopped on purpose, by a debugger or SIGSTOP (known on Linux only; else false)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False


def inherited_environment() -> dict[str, str]:
    """The environment of a child OS process: that of this one, with its import path, Python's own parts first.

    A ``queue.py`` where the worker was started must not stand in for Python's.
    """
    own = Path(os.__file__).resolve().parent
    entries = [Path(entry).resolve() for entry in sys.path]
    entries.sort(key=lambda entry: entry not in (own, own / "lib-dynload"))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, entries))}
