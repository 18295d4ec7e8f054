"""The garbage collector has nothing to do for processes that end: no step and no process leaves a cycle behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.engine import Engine
from perdure.limits import COLLECTOR_OBJECTS
from perdure.runtime import gc_tuning


@step
async def add(n: int) -> int:
    return n + 1


@workflow
async def adding(n: int) -> int:
    for _ in range(5):
        n = await add(n)
    return n


async def test_processes_that_end_leave_no_cycles_for_the_collector(sqlite_url: str) -> None:
    async with Engine(sqlite_url, work=True, workflows=[adding]) as engine:
        handles = await engine.start_many(adding, [(0,)])
        await asyncio.gather(*(handle.result(20) for handle in handles))
        left = range(10)  # what is freed may have kept more alive, of the tests before this one
        assert any(gc.collect() == 0 for _ in left)
        gc.disable()
        try:
            handles = await engine.start_many(adding, [(n,) for n in range(50)])
            await asyncio.gather(*(handle.result(20) for handle in handles))
            found = gc.collect()
        finally:
            gc.enable()
    assert found < 50, f"{found} objects of 50 processes and 250 steps could only be freed by the collector"


@pytest.fixture
def _as_a_program_finds_it() -> Iterator[None]:
    """Give back for a moment what the whole session shares, see ``tests/conftest.py``."""
    gc_tuning.restore()
    yield
    gc_tuning.calm()


@pytest.mark.usefixtures("_as_a_program_finds_it")
async def test_a_worker_raises_the_threshold_and_gives_it_back(sqlite_url: str) -> None:
    before = gc.get_threshold()
    async with Engine(sqlite_url, work=True, workflows=[adding]):
        assert before[0] < gc.get_threshold()[0] == COLLECTOR_OBJECTS
    assert gc.get_threshold() == before


@pytest.mark.usefixtures("_as_a_program_finds_it")
async def test_a_client_that_runs_no_work_leaves_the_collector_alone(sqlite_url: str) -> None:
    before = gc.get_threshold()
    async with Engine(sqlite_url, migrate=True):
        assert gc.get_threshold() == before


@pytest.mark.usefixtures("_as_a_program_finds_it")
async def test_a_threshold_that_is_high_already_is_left_alone(sqlite_url: str) -> None:
    before = gc.get_threshold()
    for own in ((COLLECTOR_OBJECTS + 1, *before[1:]), (0, *before[1:])):
        gc.set_threshold(*own)
        try:
            async with Engine(sqlite_url, work=True, workflows=[adding]):
                assert (gc.get_threshold(), gc.get_freeze_count()) == (own, 0)
            assert gc.get_threshold() == own
        finally:
            gc.set_threshold(*before)
