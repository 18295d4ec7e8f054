"""Counts the bytecodes of a process with one step and of one with ten, each from its start to its result.

CPython 3.11 writes the variables of a traced function back after each bytecode, also those that another thread has
changed meanwhile: an engine that is traced may lose a callback and wait for ever. So this is a program of its own,
which may be ended and begun again: ``python -m tests.house.bytecodes``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from perdure import Engine, step, workflow
from perdure.authoring.workflow import Workflow
from tests.house.tree import PACKAGE

PROCESSES = 100


@step
async def effect(n: int) -> int:
    return n + 1


@workflow
async def one_step(n: int) -> int:
    return await effect(n)


@workflow
async def ten_steps(n: int) -> int:
    for _ in range(10):
        n = await effect(n)
    return n


@contextmanager
def counted() -> Iterator[dict[CodeType, int]]:
    """How many bytecodes of the package run, by function, in all threads that begin inside."""
    counts: dict[CodeType, int] = {}

    def each(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode":
            counts[frame.f_code] = counts.get(frame.f_code, 0) + 1
        return each

    def every(frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(str(PACKAGE)):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return each

    threading.settrace(every)
    sys.settrace(every)
    try:
        yield counts
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]


async def bytecodes(flow: Workflow[..., int]) -> float:
    """Bytecodes of one process, of so many that are started at once on a fresh store, once the engine is warm."""
    with counted() as counts:
        async with Engine("sqlite://:memory:", work=True, workflows=[flow]) as engine:

            async def process(n: int) -> int:
                return await (await engine.start(flow, n)).result()

            await asyncio.gather(*map(process, range(PROCESSES)))
            counts.clear()
            await asyncio.gather(*map(process, range(PROCESSES)))
            return sum(counts.values()) / PROCESSES


async def main() -> None:
    """Print both counts as JSON."""
    one, ten = await bytecodes(one_step), await bytecodes(ten_steps)
    print(json.dumps({"step": (ten - one) / 9, "process": one}))


if __name__ == "__main__":
    asyncio.run(main())
