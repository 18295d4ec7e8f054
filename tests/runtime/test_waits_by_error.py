"""Waits by error: the next attempt of a step begins as its error wants, on both stores."""

from __future__ import annotations

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import workflow
from perdure.clock import SECOND
from perdure.kernel.retry import Retry, decode_attempt
from tests.runtime.conftest import Open, until


class Conflict(Exception):
    pass


class Limited(Exception):
    pass


@step(retry=Retry(attempts=3, first=1000, cap=1000, jitter=0.0, waits={Conflict: 0, Limited: 500}))
async def reserve() -> None:
    raise Conflict if attempt().number == 1 else Limited


@workflow
async def reserving() -> None:
    await reserve()


async def test_a_step_waits_as_its_error_wants(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[reserving])
    handle = await engine.start(reserving)
    await until(lambda: engine.metrics()["step_failures"] == 2)
    while len(events := await handle.history()) < 2:
        pass
    first, second = (decode_attempt(event.payload) for event in events)
    assert (first.retry_at - first.since) / SECOND < 100, "the first attempt was followed at once, and not after 1000 s"
    assert 400 <= (second.retry_at - second.since) / SECOND < 700
