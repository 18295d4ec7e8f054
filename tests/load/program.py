"""What the load consists of: processes with every way to wait, and those that make trouble."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from perdure import Retry, machine, now, receive, step, workflow

FOLDER = "PERDURE_LOAD_FOLDER"
"""Where the marks lie that steps leave; the workers are told of it by their environment."""


def folder() -> Path:
    return Path(os.environ[FOLDER])


def mark(name: str) -> None:
    """Add a byte to a file, so that its size counts the calls of all OS processes, killed ones included."""
    with open(folder() / name, "ab", buffering=0) as file:
        file.write(b".")


def marks(name: str) -> int:
    file = folder() / name
    return file.stat().st_size if file.exists() else 0


@step(retry=Retry.NONE)
async def plus_one(n: int) -> int:
    return n + 1


@step(retry=Retry.NONE, queue="load")
async def plus_two(n: int) -> int:
    return n + 2


@workflow
async def part(n: int) -> int:
    return await plus_one(n)


@workflow
async def whole(n: int) -> int:
    """A step, a timer, a queued step and a child: the input and four more."""
    n = await plus_one(n)
    await asyncio.sleep(0.05)
    n = await plus_two(n)
    return await part.child(n)


@workflow
async def quick(n: int) -> int:
    return await plus_one(n)


@workflow
async def late(moment: float) -> None:
    """Wait for a moment, in seconds since 1970, that is the same for very many."""
    await asyncio.sleep(moment - now().timestamp())


@workflow
async def hot(messages: int) -> int:
    """Hear numbers, each of which must be the next."""
    for expected in range(messages):
        heard = await receive("number", int)
        if heard != expected:
            raise ValueError(f"{heard} came when {expected} was to come")
    return messages


class Counter(machine.Machine):
    """Is called with numbers, each of which must be the next."""

    counted: int = 0

    @machine.init
    def begin(self) -> None:
        """Nothing is counted yet."""

    @machine.call
    def count(self, n: int) -> int:
        """How many were counted before, or the process breaks."""
        if n != self.counted:
            raise ValueError(f"{n} came when {self.counted} was to come")
        self.counted += 1
        return n

    @machine.call
    def end(self) -> None:
        """Be called no more, and end with how often it was called before."""
        machine.complete(self.counted)


@step(retry=Retry.NONE)
async def pause(n: int) -> int:
    await asyncio.sleep(0.1)
    return n


@step(retry=Retry.NONE)
async def linger(n: int) -> int:
    await asyncio.sleep(0.2)
    return n


@workflow
async def healthy(n: int) -> int:
    for _ in range(5):
        await pause(n)
    return n


@workflow
async def steady(steps: int) -> int:
    """A step after the other, a commit each."""
    return sum([await linger(1) for _ in range(steps)])


@step(retry=Retry.NONE)
async def deadly() -> None:
    mark("deaths")
    os.kill(os.getpid(), signal.SIGKILL)


@workflow
async def poison() -> None:
    await deadly()


@step(retry=Retry.NONE)
async def block() -> None:
    """Block the event loop for ever."""
    mark("hangs")
    time.sleep(3600)


@workflow
async def hanging() -> None:
    await block()


@workflow
async def ticking() -> None:
    """A step about every half second, for ten minutes."""
    for n in range(1_000):
        await pause(n)
        await asyncio.sleep(0.5)


@step(retry=Retry.NONE)
async def slow(n: int, seconds: float) -> int:
    """Say when it begins, by the clock that all OS processes share, and take so long."""
    with open(folder() / "begun", "ab", buffering=0) as file:
        file.write(f"{n} {time.monotonic()}\n".encode())
    await asyncio.sleep(seconds)
    return n


@workflow
async def innocent(n: int, seconds: float) -> int:
    return await slow(n, seconds)


@step(retry=Retry.NONE)
async def bite(seconds: float) -> None:
    """Kill the worker, some moments after it was begun."""
    await asyncio.sleep(seconds)
    mark("deaths")
    os.kill(os.getpid(), signal.SIGKILL)


@workflow
async def biting(seconds: float) -> None:
    await bite(seconds)


def begun_after(moment: float) -> dict[int, float]:
    """When each of the slow steps was first begun after a moment."""
    lines = (folder() / "begun").read_text().splitlines() if (folder() / "begun").exists() else []
    first: dict[int, float] = {}
    for n, at in map(str.split, lines):
        if float(at) > moment:
            first.setdefault(int(n), float(at))
    return first


@step(retry=Retry(attempts=9, first=0.1))
async def depend(n: int) -> int:
    """Ask somebody who is down until there is a file called "up"."""
    mark("calls")
    if not (folder() / "up").exists():
        raise ConnectionError("nobody answers")
    return n


@workflow
async def depending(n: int) -> int:
    return await depend(n)


HOSTED = [
    part, whole, quick, late, hot, Counter, healthy, poison, innocent, biting, steady, hanging, ticking, depending,
]  # fmt: skip
