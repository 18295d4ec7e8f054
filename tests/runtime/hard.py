"""Hard steps for the tests of cells: imported by the cells too, so nothing here may depend on the tests' own memory.

A step tells that it has begun by opening a FIFO; the FIFO ends when the last OS process that holds it is gone.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from perdure import Permanent, Retry, StepError, attempt, errors, step, workflow
from perdure.errors import StepTimeout

ONCE = Retry.NONE
SOON = Retry(attempts=3, first=0.001, jitter=0.0)

if "PERDURE_TEST_HANGING" in os.environ:
    signal.pause()


def hold(fifo: str, *, child: bool = False) -> int:
    """Tell our number on the FIFO, and hold it open until our end, and a child's if there is to be one."""
    file = os.open(fifo, os.O_WRONLY)
    if child:
        subprocess.Popen(["sleep", "1000"], pass_fds=[file])
    os.write(file, b"%d\n" % os.getpid())
    return file


def wait_with_the_lock() -> None:
    """Wait in C, with the lock of the interpreter held: no thread and no signal handler of Python runs."""
    ctypes.PyDLL(None).sleep(1000)


@dataclass
class Parcel:
    """A typed value."""

    name: str
    grams: int


@step(hard=True, retry=ONCE)
def pack(parcels: list[Parcel], *, extra: int = 0) -> Parcel:
    return Parcel("+".join(parcel.name for parcel in parcels), sum(parcel.grams for parcel in parcels) + extra)


@step(hard=True, retry=ONCE)
async def pack_async(parcel: Parcel) -> Parcel:
    await asyncio.sleep(0)
    return Parcel(parcel.name.upper(), parcel.grams)


@workflow
async def packs() -> Parcel:
    return await pack_async(await pack([Parcel("anvil", 9000), Parcel("flute", 300)], extra=1))


@step(hard=True, retry=SOON)
def known() -> list[str | int | None]:
    if attempt().number < 2:
        raise ConnectionError("again")
    here = attempt()
    return [here.number, here.step, here.kind, here.key, here.process, here.idempotency_key, os.getpid()]


@workflow
async def knows() -> list[str | int | None]:
    return await known()


@step(hard=True, retry=ONCE)
def shouting() -> None:
    attempt().publish("word", "nobody hears it here")


@workflow
async def shouts() -> None:
    await shouting()


@step(hard=True, retry=ONCE, timeout=2.0)
def stuck(fifo: str) -> None:
    hold(fifo, child=True)
    wait_with_the_lock()


@workflow
async def times_out(fifo: str) -> str:
    try:
        await stuck(fifo)
    except StepTimeout as error:
        return error.type
    return "never"


@step(hard=True, retry=ONCE)
def cleaning(fifo: str, ledger: str, obstinate: bool) -> None:
    held = -1
    try:  # who is told that it has begun may cancel it at once
        held = hold(fifo, child=True)
        threading.Event().wait()
    finally:
        Path(ledger).write_text("cleaned")
        while obstinate:
            threading.Event().wait()
        if held >= 0:
            os.close(held)


@step(hard=True, retry=ONCE)
async def cleaning_async(fifo: str, ledger: str) -> None:
    hold(fifo)
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        Path(ledger).write_text("cleaned asynchronously")


@workflow
async def cleans(fifo: str, ledger: str, obstinate: bool = False) -> None:
    await cleaning(fifo, ledger, obstinate)


@workflow
async def cleans_async(fifo: str, ledger: str) -> None:
    await cleaning_async(fifo, ledger)


@workflow
async def holds(fifo: str) -> None:
    await holding(fifo)


@step(hard=True, retry=ONCE)
def holding(fifo: str) -> None:
    hold(fifo, child=True)
    wait_with_the_lock()


@step(hard=True, retry=SOON)
def crashing(how: str) -> int:
    if attempt().number < 2:
        print("its last words", file=sys.stderr, flush=True)
        if how == "segfault":
            ctypes.string_at(0)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(3)
    return attempt().number


@workflow
async def crashes(how: str) -> int:
    return await crashing(how)


@step(hard=True, at_most_once=True)
def crashing_once() -> None:
    os._exit(attempt().number + 2)


@workflow
async def crashes_once() -> str:
    try:
        await crashing_once()
    except errors.StepOutcomeUnknown as error:
        return str(error)
    return "done"


@step(hard=True, retry=SOON, memory="200MiB")
def greedy(spared: int) -> int:
    if attempt().number < spared:
        return len(bytearray(2**30))
    return len(bytearray(2**20))


@workflow
async def greed(spared: int) -> int:
    return await greedy(spared)


@step(hard=True, retry=SOON)
def reporting(crash: bool) -> list[int | None]:
    before = attempt().last_progress
    attempt().heartbeat((before or 0) + 10)
    if crash and attempt().number < 3:
        os._exit(1)
    return [before, attempt().last_progress]


@workflow
async def reports(crash: bool) -> list[int | None]:
    return await reporting(crash)


@step(hard=True, retry=ONCE, timeout=1.0)
def beating() -> str:
    for _ in range(30):
        threading.Event().wait(0.05)
        attempt().heartbeat()
    return f"alive, {attempt().remaining() > 0.5}"


@workflow
async def beats() -> str:
    return await beating()


@step(hard=True, retry=ONCE)
def noisy() -> str:
    print("to stdout", "x" * 10)
    os.write(1, b"\x00\x00\x00\x05hello")
    os.write(2, b"to stderr " + b"y" * 300_000 + b"\n")
    return "heard"


@workflow
async def noise() -> str:
    return await noisy()


@step(hard=True, retry=ONCE)
def number() -> int:
    return os.getpid()


@workflow
async def numbers(count: int, together: bool = False) -> list[int]:
    if together:
        return list(await asyncio.gather(*(number() for _ in range(count))))
    return [await number() for _ in range(count)]


@workflow
async def hurries() -> int:
    try:
        async with asyncio.timeout(0.01):
            return await number()
    except TimeoutError:
        return -await number()


@step(hard=True, retry=ONCE)
def expendable() -> int:
    return int(Path("/proc/self/oom_score_adj").read_text())


@workflow
async def yields() -> int:
    return await expendable()


@step(hard=True, retry=ONCE)
def open_files() -> list[str]:
    files = [f"/proc/self/fd/{file}" for file in range(3, 256)]
    return [os.readlink(file) for file in files if os.path.exists(file)]


@workflow
async def looks() -> list[str]:
    return await open_files()


@step(hard=True, retry=ONCE)
def where() -> tuple[int, str, str, str, float]:
    """The fork server, and what a cell has of its worker or by itself."""
    return os.getppid(), os.getcwd(), os.environ.get("PERDURE_TEST_WHERE", ""), sys.path[-1], random.random()


@workflow
async def stands() -> tuple[int, str, str, str, float]:
    return await where()


class Refused(Exception):
    """An error of the application's own."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def answer(what: str) -> str:
    """Whatever a step may say or raise: all of it must be told alike, whether it is hard or not."""
    match what:
        case "an object":
            return object()  # type: ignore[return-value]
        case "another type":
            return 7  # type: ignore[return-value]
        case "too much":
            return "x" * (2**21 + 1)
        case "exit":
            sys.exit(3)
        case "permanent":
            raise Permanent("never again")
        case "refused":
            raise Refused(1, 2)
        case "time":
            raise TimeoutError("of its own")
        case "group":
            raise ExceptionGroup("two", [ValueError("one"), Refused(1, 2)])
        case "cancelled":
            raise asyncio.CancelledError("by itself")
    return what


POLICY = Retry(attempts=2, first=0.001, never=(Refused,))
soft_answer = step(name="answers", retry=POLICY)(answer)
hard_answer = step(name="answers", retry=POLICY, hard=True)(answer)


@workflow
async def answers(what: str) -> list[str]:
    told = []
    for one in (soft_answer, hard_answer):
        try:
            told.append(await one(what))
        except StepError as error:
            told.append(f"{type(error).__name__} {error}")
    return told


class Overweight(Exception):
    """What a hard step declares, with more than is recorded of it."""

    def __init__(self, grams: int) -> None:
        super().__init__(f"{grams} g")
        self.grams = grams


@step(hard=True, retry=ONCE, raises=Overweight)
def weigh(grams: int) -> int:
    raise Overweight(grams)


class Limited(Exception):
    """The other system has had enough for now."""


@step(hard=True, retry=Retry(attempts=3, first=1000, cap=1000, waits={Limited: 0}))
def limited() -> int:
    if attempt().number < 3:
        raise Limited
    return attempt().number


@workflow
async def waits_by_error() -> int:
    return await limited()
