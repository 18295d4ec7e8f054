"""An error that a step declares reaches the workflow as its own class, wherever the step runs, and again at replay."""

from __future__ import annotations

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.errors import ProcessFailed, StepError
from perdure.kernel.retry import Retry
from tests.runtime.conftest import LIMIT, Open, until_row
from tests.runtime.hard import Overweight, weigh


@step(name="declared.here", retry=Retry.NONE, raises=Overweight)
async def here(grams: int) -> int:
    raise Overweight(grams)


@step(name="declared.thread", retry=Retry.NONE, raises=Overweight)
def in_a_thread(grams: int) -> int:
    raise Overweight(grams)


@step(name="declared.queue", retry=Retry.NONE, raises=Overweight, queue="scales")
async def in_a_queue(grams: int) -> int:
    raise Overweight(grams)


@workflow(name="declared/weighs")
async def weighs() -> list[str]:
    told = []
    for one in (here, in_a_thread, in_a_queue, weigh):
        try:
            await one(len(told))
        except Overweight as error:
            told.append(f"{error.step if isinstance(error, StepError) else 'no step'}: {error}")
    await receive("go")
    return told


@workflow(name="declared/fails")
async def fails() -> int:
    return await here(7)


ALL = ["declared.here: 0 g", "declared.thread: 1 g", "declared.queue: 2 g", "weigh: 3 g"]


async def test_a_declared_error_is_rebuilt_wherever_the_step_runs_and_by_another_worker(opened: Open) -> None:
    first, _ = await opened(work=True, workflows=[weighs])
    handle = await first.start(weighs)
    await until_row(first, handle.id, lambda row: row.awaiting == "signal go")
    await first.close(0)
    second, _ = await opened(work=True, workflows=[weighs])
    await second.process(handle.id).signal("go")
    assert await second.process(handle.id).result(timeout=LIMIT) == ALL


async def test_a_process_ends_with_the_class_and_text_of_the_error_and_no_advice_is_stored(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[fails])
    handle = await engine.start(fails)
    with pytest.raises(ProcessFailed, match="Overweight: 7 g") as caught:
        await handle.result(LIMIT)
    assert (caught.value.type, caught.value.detail) == ("Overweight", "7 g")
    error = (await handle.status()).error
    assert error is not None
    assert "step 'declared.here' failed, tried once: Overweight: 7 g" in error.trace
