"""What a step and a start cost, counted in bytecodes: a little more by every change is noticed on the day.

A count does not depend on the machine or on what else it does, as a time would. It differs between versions of the
interpreter, and by a hundredth between runs, by how batches fall. Who makes a step dearer for a good reason raises the
number here, and says in the commit's message what it buys.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest

from perdure import Engine, step, workflow
from perdure.authoring.workflow import Workflow
from tests.house.tree import PACKAGE

PROCESSES = 100
BUDGETS = {
    (3, 11): {"step": 2_245, "process": 5_110},
    (3, 12): {"step": 2_125, "process": 4_840},
    (3, 13): {"step": 2_125, "process": 4_840},
}
"""Bytecodes of a step after a step, and of a process with one step from its start to its result."""
TRIES = 5
"""On a busy machine batches are smaller and more, which costs more each: what the code costs is the least."""


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

    before = sys.gettrace()
    threading.settrace(every)
    sys.settrace(every)
    try:
        yield counts
    finally:
        sys.settrace(before)
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


@pytest.mark.skipif(sys.version_info[:2] not in BUDGETS, reason="nobody has counted on this version of Python yet")
async def test_a_step_and_a_start_cost_no_more_than_they_did() -> None:
    budget = BUDGETS[sys.version_info[:2]]
    for _ in range(TRIES):
        one, ten = await bytecodes(one_step), await bytecodes(ten_steps)
        found = {"step": (ten - one) / 9, "process": one}
        if all(cost <= budget[what] for what, cost in found.items()):
            break
    for what, cost in found.items():
        assert cost <= budget[what], f"a {what} costs {cost:.0f} bytecodes, {budget[what]} are allowed: see above"
        assert cost >= 0.93 * budget[what], f"a {what} costs only {cost:.0f} bytecodes by now: lower the number above"
