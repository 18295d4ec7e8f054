"""A machine whose time, chance and ids a test controls; nothing in it moves by itself."""

from __future__ import annotations

import hashlib
from typing import Protocol

from perdure.clock import SECOND, Computer, microseconds

NOON = 1_780_000_000 * SECOND
"""Where tests begin: a fixed instant (28 May 2026), the same in every run."""


class Time(Protocol):
    """The time of a store under test, however that store gets it."""

    async def now(self) -> int:
        """The store's time, in microseconds since 1970."""

    async def advance(self, seconds: float) -> int:
        """Move time on; the answer is the new time in microseconds."""

    async def set_back(self, seconds: float) -> None:
        """Set the wall clock back, as a bad time server or a fail-over does."""


class MovableMachine(Computer):
    """A :class:`~perdure.clock.Computer` that a test moves; chance and ids follow from ``seed`` alone."""

    def __init__(self, *, now: int = NOON, seed: int = 0) -> None:
        self._now = now
        self._monotonic = 0
        self._seed = seed
        self._drawn = 0
        self._ids = 0

    def now(self) -> int:
        """The wall clock in microseconds, where the test has put it."""
        return self._now

    def monotonic(self) -> float:
        """Seconds that have been advanced since the machine was made."""
        return self._monotonic / SECOND

    def random(self) -> float:
        """The next number from 0 up to but not including 1 that follows from the seed."""
        self._drawn += 1
        return int.from_bytes(self._digest(b"chance", self._drawn)[:6], "big") / (1 << 48)

    def new_id(self) -> bytes:
        """A UUIDv7 as 16 bytes: the test's time, then a counter, so that later ids are greater."""
        self._ids += 1
        milliseconds = (self._now // 1000).to_bytes(6, "big")
        counter = self._ids.to_bytes(4, "big")
        high, low = counter[:2], counter[2:]
        tail = self._digest(b"id", self._ids)
        first = (0x7000 | (int.from_bytes(high, "big") >> 4)).to_bytes(2, "big")
        second = bytes([0x80 | (high[1] & 0x0F)])
        return milliseconds + first + second + low + tail[:5]

    def advance(self, seconds: float) -> int:
        """Move both clocks on; the answer is the new wall clock time in microseconds."""
        moved = microseconds(seconds)
        self._now += moved
        self._monotonic += moved
        return self._now

    def set_back(self, seconds: float) -> None:
        """Set the wall clock back; the monotonic one stays."""
        self._now -= microseconds(seconds)

    def _digest(self, what: bytes, number: int) -> bytes:
        return hashlib.blake2b(what + self._seed.to_bytes(8, "big") + number.to_bytes(8, "big")).digest()


class MachineTime:
    """The :class:`Time` of a store that reads the machine handed to it."""

    def __init__(self, machine: MovableMachine) -> None:
        self.machine = machine

    async def now(self) -> int:
        """The machine's wall clock, in microseconds."""
        return self.machine.now()

    async def advance(self, seconds: float) -> int:
        """Move the machine's clocks on."""
        return self.machine.advance(seconds)

    async def set_back(self, seconds: float) -> None:
        """Set the machine's wall clock back."""
        self.machine.set_back(seconds)
