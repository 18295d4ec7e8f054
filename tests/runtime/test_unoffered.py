"""A worker says at its start how many processes wait for code that no live worker offers, on both stores."""

from __future__ import annotations

import pytest

from perdure.authoring.workflow import receive, workflow
from perdure.kernel.commit import Start
from perdure.kernel.process import Process
from tests.runtime.conftest import LIMIT, Open, until, until_row


@workflow
async def order() -> None:
    await receive("paid")


@workflow(version="2")
async def gone() -> None:
    await receive("paid")


@workflow
async def other() -> None: ...


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return sorted(record.getMessage() for record in caplog.records if "no live worker" in record.getMessage())


async def test_a_worker_says_at_its_start_what_waits_for_code_that_nobody_offers(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    engine, store = await opened(work=True, workflows=[order, gone])
    handles = [await engine.start(flow) for flow in (order, gone, gone, gone)]
    for handle in handles:
        await until_row(engine, handle.id, lambda row: row.owner is None)
    await engine.process(handles[-1].id).hold()
    rows = [Process(engine.machine.new_id(), "@bank", None, b"[]", code=label) for label in ("", "till", "till")]
    later = await store.now() + 3_600_000_000
    rows += [Process(engine.machine.new_id(), "order", None, b"[]", code=order.version, due_at=later)]
    await store.start([Start(row) for row in rows])
    await engine.close(0)
    assert said(caplog) == []
    await opened(work=True, workflows=[other])
    await until(lambda: len(said(caplog)) == 4)
    texts = said(caplog)
    assert texts[0].startswith("1 steps wait in queue 'bank', which no live worker serves")
    assert texts[1].startswith("2 steps wait in queue 'bank' on a worker with the label 'till'")
    assert texts[2].startswith(f"2 unfinished processes of kind 'order' version '{order.version}' are left")
    assert texts[3].startswith("3 unfinished processes of kind 'gone' version '2' are left")
    assert "perdure ps --kind gone" in texts[3]


async def test_a_worker_that_offers_all_that_waits_says_nothing(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    engine, _ = await opened(work=True, workflows=[order])
    handle = await engine.start(order)
    await until_row(engine, handle.id, lambda row: row.owner is None)
    await engine.close(0)
    other, store = await opened(work=True, workflows=[order])
    await until(lambda: [call for call in store.calls if call[0] == "records"])
    await other.process(handle.id).signal("paid")
    await other.process(handle.id).result(timeout=LIMIT)
    assert said(caplog) == []
