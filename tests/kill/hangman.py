"""Processes that block their worker's event loop, for ever unless somebody ends it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import threading
import time
from pathlib import Path

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.kernel.retry import Retry
from tests.kill.workload import LEDGER, effect

FOR_EVER = 3600.0


def sleep_here() -> None:
    time.sleep(FOR_EVER)


@step(retry=Retry.NONE, timeout=1)
async def block() -> None:
    effect("block")
    sleep_here()


@workflow
async def blocked_by_a_step() -> None:
    await block()


@step(retry=Retry.NONE)
async def block_in_a_task() -> None:
    effect("block")
    await asyncio.sleep(0)
    await asyncio.gather(block.function())


@workflow
async def blocked_by_a_task_of_a_step() -> None:
    await block_in_a_task()


@step(retry=Retry.NONE)
async def prepare() -> None:
    effect("block")


@workflow
async def blocked_by_a_lock() -> None:
    await prepare()
    lock = threading.Lock()
    for _ in range(2):
        lock.acquire()


def hanging(way: str) -> str:
    """The name of the workflow that hangs in this way."""
    return f"blocked_by_{way}"


HANGING = {"a step": "sleep_here", "a task of a step": "sleep_here", "a lock": "blocked_by_a_lock"}
"""The ways to hang, and the function that the stack must name."""


@step(retry=Retry.NONE)
async def keep_the_interpreter() -> None:
    effect("block")
    ctypes.PyDLL(None).sleep(int(FOR_EVER))  # the lock of the interpreter is not given back meanwhile


@workflow
async def blocked_in_c() -> None:
    await keep_the_interpreter()


@step(retry=Retry.NONE)
async def keep_the_interpreter_once() -> None:
    effect("block")
    if Path(os.environ[LEDGER]).read_text().count("block ") == 1:
        ctypes.PyDLL(None).sleep(int(FOR_EVER))


@workflow
async def blocked_in_c_once() -> None:
    await keep_the_interpreter_once()


@step(retry=Retry.NONE)
async def die_twice_then_wait() -> None:
    """Kill two workers; in the third, the solitary one, wait for its end."""
    effect("lasting")
    if Path(os.environ[LEDGER]).read_text().count("lasting") <= 2:
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(FOR_EVER)


@workflow
async def suspicious() -> None:
    await die_twice_then_wait()
