"""An errand: the process on which the tests of commands are tried, and what was done for it."""

from __future__ import annotations

import asyncio
from typing import Any

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import receive, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.kernel.soundness import unsound
from perdure.testing.faults import FaultyStore
from tests.runtime.conftest import LIMIT, until_row

done: list[str] = []
keys: dict[str, list[str]] = {}
gates: dict[str, asyncio.Event] = {}
failing: set[str] = set()


def forget() -> None:
    """Begin a test with nothing done."""
    for memory in (done, keys, gates, failing):
        memory.clear()


@step(retry=Retry.NONE)
async def act(deed: str) -> str | None:
    """Write down a deed, wait at its gate if it has one, and fail if it is to."""
    done.append(deed)
    keys.setdefault(deed, []).append(attempt().idempotency_key)
    nth = len(keys[deed])
    try:
        if deed in gates:
            await gates[deed].wait()
    except asyncio.CancelledError:
        done.append(f"{deed} stopped")
        raise
    if deed in failing:
        raise ConnectionError(deed)
    return f"{deed} {nth}"


@workflow
async def errand() -> str:
    first = await act("first")
    told = await receive("go", str)
    return f"{first}, {told}, {await act('last')}"


@workflow
async def stubborn() -> str:
    while True:
        try:
            return await receive("go", str)
        except asyncio.CancelledError:
            await act("refusal")


FLOWS = [errand, stubborn]


async def waiting(engine: Engine, key: str | None = None) -> Handle[Any]:
    """An errand that has one result and waits for a signal in nobody's hand."""
    handle = await engine.start(errand.options(key=key))
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal go" and row.owner is None)
    return handle


async def sound(engine: Engine, store: FaultyStore, handle: Handle[Any]) -> Status:
    """The status of a process whose record breaks no law."""
    async with asyncio.timeout(LIMIT):
        while True:
            row = await engine.row(handle.id)
            events = await store.history(row.id, row.run, limit=row.events)
            messages = await store.messages([(row.id, 0)])
            again = await engine.row(handle.id)
            if (again.version, again.inbox) == (row.version, row.inbox):
                assert unsound(row, events, messages, await store.now()) == []
                return row.status
