"""Timeouts, deadlines, delays and waits take a timedelta as well as seconds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.clock import SECOND
from perdure.engine import Engine
from perdure.kernel.retry import Retry
from perdure.turns.verbs import receive
from tests.input.door import LIMIT

MINUTE = timedelta(minutes=1)


@step(timeout=MINUTE, retry=Retry(first=MINUTE, cap=2 * MINUTE, total=3 * MINUTE))
async def lasting() -> None: ...


@workflow(name="durations/waiting", deadline=60 * MINUTE, idle=MINUTE)
async def waiting() -> str:
    try:
        return await receive("word", str, timeout=timedelta(milliseconds=1))
    except TimeoutError as error:
        return str(error)


@workflow(name="durations/lasting")
async def forever() -> None:
    await receive("end")


@pytest.fixture
async def engine(store_url: str) -> AsyncIterator[Engine]:
    async with Engine(store_url, work=True, workflows=[waiting, forever]) as engine:
        yield engine


def test_definitions_take_timedeltas() -> None:
    assert (lasting.timeout, lasting.retry.first, lasting.retry.cap, lasting.retry.total) == (60, 60, 120, 180)
    assert (waiting.deadline, waiting.idle) == (3600, 60)
    routing = lasting.options(queue="durations", total=MINUTE, delay=timedelta(seconds=5)).routing
    assert routing is not None
    assert (routing.total, routing.delay) == (60, 5)
    assert forever.child.options(deadline=MINUTE).deadline == 60


async def test_starts_waits_and_commands_take_timedeltas(engine: Engine) -> None:
    assert (
        await (await engine.start(waiting)).result(timedelta(seconds=LIMIT)) == "no signal 'word' came within 0.001 s"
    )
    handle = await engine.start(forever.options(deadline=MINUTE))
    row = await engine.row(handle.id)
    assert row.deadline is not None
    assert abs(row.deadline - row.created_at - 60 * SECOND) < SECOND
    with pytest.raises(TimeoutError):
        await handle.result(timeout=timedelta(0))
    assert await handle.value("word", str, wait=timedelta(milliseconds=1), default="none") == "none"
    with pytest.raises(TimeoutError):
        await handle.call("word", timeout=timedelta(milliseconds=1))
    assert (await engine.queues.limit("durations", rate=5, per=MINUTE)).per == 60
    await handle.cancel(deadline=MINUTE)
