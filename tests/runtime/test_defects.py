"""A defect of ours leaves no process held and stuck: it is parked as broken, and a person may let it go on."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.engine import Engine
from perdure.errors import ProcessBroken
from tests.runtime.conftest import LIMIT, Open


@step
async def one() -> str:
    return "one"


@step
async def other() -> str:
    return "other"


@workflow
async def two_steps() -> list[str]:
    return [await one(), await other()]


def failing_to_begin(engine: Engine, which: str) -> None:
    """The first beginning of that step meets a defect of the agent."""
    assert engine.worker is not None
    agent = engine.worker.scheduler.agent
    begin, failed = agent.begin, []

    def begun(instance: Any, ask: Any) -> None:
        if ask.name == which and not failed:
            failed.append(which)
            raise LookupError("a defect")
        begin(instance, ask)

    agent.begin = begun  # type: ignore[method-assign]


@pytest.mark.parametrize("which", ["one", "other"])
async def test_a_process_whose_step_cannot_be_begun_is_parked_and_goes_on_when_it_is_retried(
    opened: Open, which: str
) -> None:
    engine, _ = await opened(work=True, workflows=[two_steps])
    failing_to_begin(engine, which)
    handle = await engine.start(two_steps)
    with pytest.raises(ProcessBroken, match="LookupError: a defect"):
        await handle.result(LIMIT)
    assert engine.metrics()["in_hand"] == 0
    await handle.retry()
    assert await handle.result(LIMIT) == ["one", "other"]
