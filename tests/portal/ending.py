"""Steps that are under way when the main thread of their program ends, and go on then."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

from perdure import Retry, step, workflow

PROGRAM = "PERDURE_TEST_ENDING"
"""Set in a program that ends; the tests themselves go on."""

own = ThreadPoolExecutor(1)
begun = threading.Event()


def main_has_ended() -> bool:
    """Whether this is a program whose main thread has ended, or ends now."""
    ends = getattr(threading, "_SHUTTING_DOWN", False) or not threading.main_thread().is_alive()
    return ends or PROGRAM not in os.environ


async def until_main_ends() -> None:
    """Say that the step has begun, and wait."""
    begun.set()
    while not main_has_ended():
        await asyncio.sleep(0.001)


def add(number: int) -> int:
    """Add one, in a thread."""
    return number + 1


@step(retry=Retry.NONE)
async def by_loop(number: int) -> int:
    """Use the threads of the event loop."""
    await until_main_ends()
    return await asyncio.to_thread(add, number)


@step(retry=Retry.NONE)
async def by_executor(number: int) -> int:
    """Use an executor of the program's own."""
    await until_main_ends()
    return await asyncio.get_running_loop().run_in_executor(own, add, number)


@step(retry=Retry.NONE)
def by_thread(number: int) -> int:
    """Be no coroutine, and use an executor."""
    begun.set()
    while not main_has_ended():
        threading.Event().wait(0.001)
    return own.submit(add, number).result()


@step(at_most_once=True)
async def report() -> str:
    """Have a result that is so large that a codec seals it in a thread."""
    await until_main_ends()
    return "x" * 400_000


@workflow
async def adding(how: str, number: int) -> int:
    """Have one of these steps."""
    if how == "loop":
        return await by_loop(number)
    if how == "executor":
        return await by_executor(number)
    if how == "thread":
        return await by_thread(number)
    return len(await report())
