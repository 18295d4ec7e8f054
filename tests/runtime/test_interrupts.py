"""KeyboardInterrupt and SystemExit are errors like any other if code raises them: its worker lives."""

from __future__ import annotations

import asyncio
import signal

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.cli.worker_process import _loop_factory
from perdure.errors import ProcessFailed
from perdure.kernel.retry import Retry
from perdure.runtime import os_process
from perdure.turns.interrupt import pressed
from perdure.turns.saga import saga
from tests.runtime.conftest import LIMIT, Open

RAISED = {"KeyboardInterrupt": KeyboardInterrupt, "SystemExit": SystemExit}
undone: list[str] = []


@step(retry=Retry.NONE)
async def take_back(name: str) -> None:
    undone.append(name)


@step(retry=Retry.NONE, undo=take_back)
async def take(name: str) -> str:
    return name


@workflow
async def interrupting(name: str) -> None:
    async with saga():
        await take(name)
        raise RAISED[name]("of the code")


@workflow
async def interrupting_in_a_task(name: str) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(interrupting.function(name))


@pytest.mark.parametrize("flow", [interrupting, interrupting_in_a_task], ids=["the root", "a task"])
@pytest.mark.parametrize("name", RAISED)
async def test_a_process_whose_code_raises_what_would_end_its_worker_fails_and_is_undone(
    opened: Open, name: str, flow: object
) -> None:
    undone.clear()
    engine, _ = await opened(work=True, workflows=[interrupting, interrupting_in_a_task])
    handle = await engine.start(flow, name)  # type: ignore[call-overload]
    with pytest.raises(ProcessFailed, match=f"{name}: of the code"):
        await handle.result(LIMIT)
    assert undone == [name]


def test_a_worker_outlives_a_task_of_a_step_that_wants_to_end_the_program() -> None:
    told = []

    async def leaving() -> None:
        raise SystemExit(3)

    async def main() -> str:
        for factory in (leaving, interrupting.function):
            task = asyncio.create_task(leaving() if factory is leaving else _interrupted())
            try:
                await task
            except BaseException as error:
                told.append(type(error).__name__)
        return "its end"

    for factory in (None, _loop_factory()):
        told.clear()
        assert os_process.run(main(), factory) == "its end"
        assert told == ["SystemExit", "KeyboardInterrupt"]


async def _interrupted() -> None:
    raise KeyboardInterrupt


def test_a_key_that_was_pressed_is_told_from_an_error_that_was_raised() -> None:
    def press() -> None:
        signal.raise_signal(signal.SIGINT)

    def own(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    def by_hand() -> None:
        raise KeyboardInterrupt

    found = []
    for handler in (signal.default_int_handler, own):
        before = signal.signal(signal.SIGINT, handler)
        try:
            for function in (press, by_hand):
                try:
                    function()
                except KeyboardInterrupt as error:
                    found.append(pressed(error))
        finally:
            signal.signal(signal.SIGINT, before)
    assert found == [True, False] * 2
