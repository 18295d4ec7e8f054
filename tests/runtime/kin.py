"""Kin: children for the tests of families, held at gates; and what holds back, ends and checks the engines there."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.engine import Engine
from perdure.kernel.retry import Retry
from perdure.kernel.soundness import unsound
from perdure.store.base import Search
from perdure.testing.faults import FaultyStore
from tests.runtime.conftest import LIMIT

done: list[Any] = []
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


@step(retry=Retry.NONE)
async def gated(name: str) -> str:
    done.append(name)
    await gates[name].wait()
    return name


@step(retry=Retry.NONE)
async def fails_once(name: str) -> str:
    done.append(name)
    if done.count(name) == 1:
        raise RuntimeError("once")
    return name


@step(retry=Retry.NONE)
async def fails_times(name: str, times: int) -> str:
    done.append(name)
    if done.count(name) <= times:
        raise RuntimeError(f"{times} times")
    return name


@workflow
async def kid(name: str) -> str:
    return await gated(name)


@workflow
async def failing_kid(name: str) -> str:
    raise ValueError(name)


class Hold:
    """Holds back the commits of one engine from the ``first`` on, until it is lifted; ``met`` counts those held.

    With ``sending`` only those are counted, and held, that send messages.
    """

    def __init__(self, store: FaultyStore, first: int = 1, *, sending: bool = False) -> None:
        self.first = first
        self.sending = sending
        self.calls = self.met = 0
        self.lifted = asyncio.Event()
        store.before = self._visit

    async def _visit(self, name: str, argument: Any) -> None:
        if name == "commit" and not (self.sending and not any(commit.sends for commit in argument)):
            self.calls += 1
            if self.calls >= self.first:
                self.met += 1
                await self.lifted.wait()


async def crash(engine: Engine, store: FaultyStore) -> None:
    """Let an engine's worker be as good as dead: it takes nothing, drops all, and is known to have ended."""
    assert engine.worker is not None
    await engine.worker.claimer.loop.stop()
    for instance in list(engine.worker.scheduler.instances.values()):
        engine.worker.scheduler.drop(instance)
    await store.store.retire(engine.worker.incarnation.id, None, died=False)


async def sound(engine: Engine) -> None:
    """Check every row by the laws; one that moves while it is read is read again."""
    store = engine.store
    waiting = await store.search(Search(limit=1000))
    while waiting:
        row = waiting.pop()
        events = await store.history(row.id, row.run, limit=row.events or 1)
        messages = await store.messages([(row.id, 0)])
        [again] = await store.search(Search(ids=(row.id,)))
        if (again.version, again.inbox) == (row.version, row.inbox):
            assert unsound(row, events, messages, await store.now()) == []
        else:
            waiting.append(again)


async def statuses(engine: Engine, kind: str) -> Counter[str]:
    return Counter(str(one.status) for one in await engine.list(Search(kind=kind, limit=1000)))


async def until_statuses(engine: Engine, kind: str, **wanted: int) -> None:
    """Look at the processes of a kind again and again until just so many are of these statuses."""
    async with asyncio.timeout(LIMIT):
        while not wanted.items() <= (await statuses(engine, kind)).items():
            await asyncio.sleep(0.001)


async def until_all_have_ended(engine: Engine, kind: str) -> None:
    """Look at the processes of a kind again and again until none of them runs."""
    async with asyncio.timeout(LIMIT):
        while (await statuses(engine, kind))["running"]:
            await asyncio.sleep(0.001)
