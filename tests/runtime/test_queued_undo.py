"""Queued steps with an undo: no undo overtakes a step that runs in another worker's hands."""

from __future__ import annotations

import asyncio

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.errors import ProcessCancelled, ProcessFailed
from perdure.kernel.policy import Retry
from tests.runtime.conftest import LIMIT, Open, until

done: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


@step
async def refund(cents: int, result: str | None) -> None:
    done.append(f"refund {result}")


@step(undo=refund, queue="bank", retry=Retry.NONE)
async def charge(cents: int) -> str:
    done.append("charge begins")
    try:
        if cents:
            await asyncio.Event().wait()
    finally:
        done.append("charge ends")
    return "receipt"


@workflow
async def sale(cents: int) -> None:
    await charge(cents)
    raise ValueError("sold out")


async def test_a_queued_step_is_undone_with_its_answer(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[sale], queues=["bank"])
    with pytest.raises(ProcessFailed, match="compensated: charge:1"):
        await (await engine.start(sale, 0)).result(LIMIT)
    assert done == ["charge begins", "charge ends", "refund receipt"]


async def test_rule_23_the_undo_of_a_queued_step_waits_until_its_worker_has_let_go_of_it(opened: Open) -> None:
    seller, _ = await opened(work=True, workflows=[sale])
    await opened(work=True, workflows=[], queues=["bank"])
    handle = await seller.start(sale, 7)
    await until(lambda: done)
    await handle.cancel()
    with pytest.raises(ProcessCancelled, match="compensated: charge:1"):
        await handle.result(LIMIT)
    assert done == ["charge begins", "charge ends", "refund None"]
