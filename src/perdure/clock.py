"""Time, chance, identity and child OS processes: the only file that may read the machine's clock or its randomness.

Everything else is handed a :class:`Computer`. Tests and the simulator hand in another one.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from os import urandom  # by value, like the clock below: the sandbox replaces these names in their modules
from struct import Struct
from threading import Thread
from time import monotonic, time_ns
from typing import Any, Protocol, TypeAlias

MICROSECOND = 1
SECOND = 1_000_000

Duration: TypeAlias = float | timedelta
"""How long: seconds, or a timedelta."""


_boottime: int | None = getattr(time, "CLOCK_BOOTTIME", None)
_ticks: Callable[[], float] = monotonic if _boottime is None else partial(time.clock_gettime, _boottime)
"""On Linux CLOCK_BOOTTIME: CLOCK_MONOTONIC stands still while a laptop or a virtual machine is suspended."""


class ChildProcess(Protocol):
    """An OS process that was started here; ``returncode`` is None until it has ended, negative if a signal ended it."""

    @property
    def returncode(self) -> int | None:
        """Its return code, or None while it runs."""

    def terminate(self) -> None:
        """Ask it to stop."""

    def kill(self) -> None:
        """End it at once."""

    async def wait(self) -> int:
        """Wait for its end and give its return code."""


def blocking_pair() -> tuple[socket.socket, socket.socket]:
    """A connected pair of sockets, one end of it for another OS process; both block for as long as it takes.

    A module of the application may have called ``socket.setdefaulttimeout``: then a new socket does not block, and an
    OS process that inherits it would take "nothing to read yet" for an error.
    """
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(True)
    return pair


class Linked:
    """A child OS process whose standard input is a socket: it shows the child our death, and us its signs of life."""

    def __init__(self, process: asyncio.subprocess.Process, line: socket.socket) -> None:
        self.process = process
        self.pid = process.pid
        self.line = line

    @property
    def returncode(self) -> int | None:
        """Its return code, or None while it runs."""
        return self.process.returncode

    def terminate(self) -> None:
        """Ask it to stop."""
        self.process.terminate()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()

    async def wait(self) -> int:
        """Wait for its end and give its return code."""
        return await self.process.wait()


class Computer:
    """What the computer itself gives: a wall clock, a monotonic clock, chance, fresh ids, and child OS processes.

    A ``simulated`` one has virtual threads, and leaves Python's garbage collector alone.
    """

    simulated = False

    def now(self) -> int:
        """The wall clock in microseconds since 1970 (UTC). Only a store may call this."""
        return time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds that never run backward, from an unknown start; they also pass while the machine is suspended."""
        return _ticks()

    @property
    def ticks(self) -> Callable[[], float]:
        """:meth:`monotonic` as the quickest thing to call: every resumption of a step asks it."""
        return _ticks if type(self).monotonic is Computer.monotonic else self.monotonic

    def random(self) -> float:
        """A number from 0 up to but not including 1, for jitter."""
        return random.random()

    def new_id(self) -> bytes:
        """A fresh UUIDv7 as 16 bytes: 48 bits of milliseconds, 12 of their fraction, then chance (RFC 9562).

        Each id is greater than the one before it in this OS process, whatever the clock does. The fraction is in it
        twice, since the id of a child process has its depth in place of the first.
        """
        global _last
        while not _chance:
            _chance.extend(one & _DRAWN | _VARIANT for one in _eight.unpack(urandom(4096)))
        low = _chance.pop()  # atomic: no two threads get the same number
        stamp = time_ns() * 512 // 125_000
        if stamp <= _last:
            stamp = _last + 1
        _last = stamp
        part = stamp & 0xFFF
        return _pack((stamp ^ part) << 4 | 0x7000 | part, low | part << 44)

    def name(self) -> str:
        """The name of this OS process for people: the host and its process id there."""
        return f"{socket.gethostname()}:{os.getpid()}"

    def start_thread(self, target: Callable[[], None], name: str) -> None:
        """Start a daemon thread; raises RuntimeError or MemoryError if the system refuses it."""
        Thread(target=target, name=name, daemon=True).start()

    def in_virtual_thread(self, work: Callable[[], None]) -> None:
        """On a simulated machine only: run ``work`` a little later, as one of its threads would."""
        raise NotImplementedError

    def exit(self, code: int) -> None:
        """End this OS process here and now, without any clean-up."""
        os._exit(code)

    async def spawn(self, command: Sequence[str], environment: Mapping[str, str]) -> ChildProcess:
        """Start a child OS process; the end of its standard input shows it our death."""
        ours, theirs = blocking_pair()
        with theirs:
            try:
                child = await asyncio.create_subprocess_exec(*command, env=environment, stdin=theirs.fileno())
            except BaseException:
                ours.close()
                raise
        return Linked(child, ours)


_pack = Struct(">QQ").pack
_eight = Struct(">512Q")
_VARIANT = 0x80 << 56
_DRAWN = 0x3F << 56 | (1 << 44) - 1
_last = 0
_chance: list[int] = []
"""Random numbers drawn ahead, since each draw is a system call; a forked child forgets its parent's."""
os.register_at_fork(after_in_child=_chance.clear)


def in_seconds(duration: Any) -> Any:
    """A timedelta in seconds; anything else is returned as it is, for the caller to check."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def seconds_of(text: str) -> float | None:
    """The seconds that a text says, as ``90s``, ``15m``, ``2h``, ``7d`` or ``90``; None if it says none."""
    typed = _SPAN.fullmatch(text)
    return None if typed is None else float(typed[1]) * _UNITS[typed[2]]


_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(s|m|h|d|)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "": 1}


def microseconds(seconds: float) -> int:
    """Seconds as whole microseconds, rounded to the nearest."""
    return round(seconds * SECOND)
