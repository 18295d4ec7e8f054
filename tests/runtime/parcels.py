"""Parcels: processes of kinds with limits, what was done for them, and what is asked of an engine about them."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any

from perdure import Engine, Limits, continue_as_new, receive, step, workflow
from perdure.client.handle import Handle
from perdure.client.kinds import KindView
from perdure.kernel.diagnosis import NextMover
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from tests.runtime.conftest import Open

begun: list[str] = []
ran: Counter[str] = Counter()
most: list[int] = []
under_way: set[str] = set()
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
ONE, TWO = Limits(running=1), Limits(running=2)


def forget() -> None:
    """Begin a test with nothing done."""
    begun.clear()
    ran.clear()
    most.clear()
    under_way.clear()
    gates.clear()


@step(retry=Retry.NONE)
async def pack(name: str) -> str:
    ran[name] += 1
    under_way.add(name)
    most.append(len(under_way))
    try:
        await gates[name].wait()
    finally:
        under_way.discard(name)
    if name.startswith("bad"):
        raise ValueError(name)
    return name


@workflow(name="parcel")
async def parcel(name: str) -> str:
    begun.append(name)
    return await pack(name)


@workflow(name="declared", limits=TWO)
async def declared(name: str) -> str:
    begun.append(name)
    return await pack(name)


@workflow(name="listening")
async def listening(name: str) -> str:
    begun.append(name)
    return await receive("go", str)


@workflow(name="renewed")
async def renewed(name: str, rounds: int) -> str:
    begun.append(f"{name} {rounds}")
    await pack(name)
    return name if rounds == 1 else await continue_as_new(name, rounds - 1)


@workflow(name="retried", retry=Retry(attempts=2, first=0.01, jitter=0))
async def retried(name: str) -> str:
    begun.append(name)
    return await pack(name)


@workflow(name="instant")
async def instant(name: str) -> str:
    begun.append(name)
    return name


ALL = [parcel, declared, listening, renewed, retried, instant]


async def working(opened: Open, **settings: Any) -> Engine:
    """A worker that hosts them all."""
    engine, _ = await opened(work=True, workflows=ALL, **settings)
    return engine


async def started(engine: Engine, flow: Any, *names: str) -> list[Handle[Any]]:
    """Start one of these for each name, one after the other."""
    return [await engine.start(flow, name) for name in names]


async def settled(engine: Engine) -> None:
    """Let the engine's worker look once more at all that is due."""
    assert engine.worker is not None
    await engine.worker.claimer.look()


async def viewed(engine: Engine, kind: str) -> KindView:
    """The limits of a kind, and what runs and waits of it."""
    return next(view for view in await engine.kinds.list() if view.kind == kind)


async def waits(engine: Engine, handle: Handle[Any]) -> None:
    """It is told that it waits for a place."""
    seen = await handle.status()
    assert (seen.mover, seen.status) == (NextMover.PLACE, Status.RUNNING)
    assert "it waits for a place among processes of its kind" in seen.waiting
