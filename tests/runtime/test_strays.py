"""A stray: a row that its worker owns by the store, and does not hold. It is freed at once, not after its lease."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from tests.runtime.conftest import LIMIT, Open, until

gates: dict[str, asyncio.Event] = {}


@step
async def passes() -> None:
    await gates["now"].wait()


@workflow
async def waits() -> None:
    await passes()


async def test_a_row_that_was_let_go_while_a_beat_renewed_it_does_not_stand_still_for_a_lease(opened: Open) -> None:
    gates["now"] = asyncio.Event()
    engine, store = await opened(work=True, workflows=[waits])
    worker = engine.worker
    assert worker is not None
    handle = await engine.start(waits)
    await until(lambda: any(activation.in_flight for activation in worker.scheduler.hand.values()))
    [activation] = worker.scheduler.hand.values()
    beats = 0

    async def let_go(name: str, argument: Any) -> None:
        nonlocal beats
        if name == "beat" and argument.renewals and not beats:
            beats += 1
            worker.scheduler.drop(activation)

    store.after = let_go
    activation.lease_end = worker.scheduler.time.monotonic() + worker.scheduler.lease_seconds / 2
    worker.pulse.loop.wake()
    await until(lambda: handle.id_bytes in worker.scheduler.hand and beats == 1)
    gates["now"].set()
    await handle.result(LIMIT)
    assert worker.telemetry.counters["takeovers"] == 0, "freed at once, and not when its lease lapsed"


async def test_a_row_that_was_let_go_while_it_was_looked_whether_it_is_still_ours_is_freed_at_once(
    opened: Open,
) -> None:
    gates["now"] = asyncio.Event()
    engine, store = await opened(work=True, workflows=[waits])
    worker = engine.worker
    assert worker is not None
    handle = await engine.start(waits)
    await until(lambda: any(activation.in_flight for activation in worker.scheduler.hand.values()))
    [activation] = worker.scheduler.hand.values()
    looks = 0

    async def let_go(name: str, argument: Any) -> None:
        nonlocal looks
        if name == "beat" and argument.renewals and not looks:
            looks += 1
            worker.scheduler.drop(activation)

    store.after = let_go
    worker.grip.doubt((handle.id_bytes,))
    await until(lambda: handle.id_bytes in worker.scheduler.hand and looks == 1)
    gates["now"].set()
    await handle.result(LIMIT)
    assert worker.telemetry.counters["takeovers"] == 0, "freed at once, and not when its lease lapsed"
