"""The simulated machine: its clocks, chance, ids and children are the simulator's."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from perdure.clock import SECOND, ChildProcess, Computer, microseconds
from perdure.exhaustion import THREADS
from perdure.testing.clock import NOON
from perdure.testing.simulator.life import Life

if TYPE_CHECKING:
    from perdure.testing.simulator.loop import SimLoop


THREAD_SECONDS = (0.0, 0.05, 1.0)
"""How long what runs in a virtual thread may wait before it begins."""


class WallClock:
    """The wall clock of the simulated server: virtual time, and the jumps that were made.

    It is ``steady`` until the first of these; ``jumps`` counts them. By the lead that a beat has kept the store's
    time is ahead of it.
    """

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._jumped = 0
        self._lead = 0
        self._farthest = 0
        self.jumps = 0
        self.steady = True

    def now(self) -> int:
        """Microseconds since 1970."""
        return NOON + int(self._loop.now * SECOND) + self._jumped

    def latest(self) -> int:
        """The latest time that a worker may have by now if it has carried the store's time on by its own clock."""
        return NOON + int(self._loop.now * SECOND) + self._farthest

    def jump(self, seconds: float) -> None:
        """Set it forward, or back."""
        self.steady = False
        self.jumps += 1
        self._jumped += microseconds(seconds)
        self._farthest = max(self._farthest, self._jumped + self._lead)

    def led(self, lead: int) -> None:
        """A beat has kept this lead: whoever asks the store is told a time that is so much ahead."""
        self._lead = lead
        self._farthest = max(self._farthest, self._jumped + lead)


class SimMachine(Computer):
    """What one life sees of its computer. Jitter and ids follow from the seed and the life, not from the choices."""

    simulated = True

    def __init__(
        self,
        loop: SimLoop,
        life: Life,
        wall: WallClock,
        spawn: Callable[[], Awaitable[ChildProcess]] | None = None,
        exit: Callable[[int], None] | None = None,
    ) -> None:
        self._loop = loop
        self._life = life
        self._wall = wall
        self._spawn = spawn
        self._exit = exit
        self._salt = b"%d %d" % (loop.choices.seed, life.number)
        self._threads = self._at_work = 0
        self._for_threads: deque[Callable[[], None]] = deque()
        self._drawn = 0
        self._ids = self._latest = 0

    def now(self) -> int:
        """The server's wall clock in microseconds."""
        return self._wall.now()

    def monotonic(self) -> float:
        """Seconds of this life's own clock."""
        return self._life.start + self._loop.now * self._life.rate

    def random(self) -> float:
        """The next number from 0 up to but not including 1."""
        self._drawn += 1
        drawn = hashlib.blake2b(b"chance %d" % self._drawn, digest_size=6, key=self._salt).digest()
        return int.from_bytes(drawn, "big") / (1 << 48)

    def new_id(self) -> bytes:
        """A UUIDv7 as 16 bytes: virtual time, then a counter, twice as in life, then what the life makes of it."""
        self._ids += 1
        self._latest = max(self._latest, self._wall.now() // 1000)
        tail = bytearray(hashlib.blake2b(b"id %d" % self._ids, digest_size=10, key=self._salt).digest())
        tail[0] = 0x70 | (self._ids >> 8 & 0x0F)
        tail[1] = self._ids & 0xFF
        tail[2] = 0x80 | (tail[2] & 0x3F)
        tail[3:5] = (self._ids & 0xFFFF).to_bytes(2, "big")
        return self._latest.to_bytes(6, "big") + bytes(tail)

    def name(self) -> str:
        """The name of the life."""
        return self._life.name

    def exit(self, code: int) -> None:
        """The life ends here and now."""
        if self._exit is None:
            super().exit(code)
        else:
            self._exit(code)

    def start_thread(self, target: Callable[[], None], name: str) -> None:
        """A virtual thread: what it would do is done by :meth:`in_virtual_thread`. Raises RuntimeError if refused."""
        if self._life.refuses(THREADS, self._loop.now):
            raise RuntimeError("can't start new thread")
        self._threads += 1
        if self._for_threads:
            self.in_virtual_thread(self._for_threads.popleft())

    def in_virtual_thread(self, work: Callable[[], None]) -> None:
        """Do what a thread would do, at once or a little later; or as soon as a virtual thread is free."""
        if self._at_work < self._threads:
            self._at_work += 1
            self._loop.call_in(self._life, self._loop.choices.pick(THREAD_SECONDS, "thread"), self._do, work)
        else:
            self._for_threads.append(work)

    def _do(self, work: Callable[[], None]) -> None:
        work()
        self._at_work -= 1
        if self._for_threads:
            self.in_virtual_thread(self._for_threads.popleft())

    async def spawn(self, command: Sequence[str], environment: Mapping[str, str]) -> ChildProcess:
        """A child: what the command would run, as another life of this history."""
        if self._spawn is None:
            return await super().spawn(command, environment)
        return await self._spawn()
