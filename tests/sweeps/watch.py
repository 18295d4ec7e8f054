"""A watch: what the sweeps of one or more supervisors are given, on a store whose time is in the test's hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import pytest

from perdure.authoring.registry import Registry
from perdure.authoring.workflow import workflow
from perdure.errors import StoreUnavailable
from perdure.kernel.note import Note
from perdure.kernel.process import Process
from perdure.kernel.soundness import Finding, unsound
from perdure.runtime.committer import Committer
from perdure.runtime.options import WorkerOptions
from perdure.runtime.parts import Incarnation, WorkerParts
from perdure.runtime.store_time import StoreTime
from perdure.runtime.sweeps.context import SweepContext
from perdure.store.base import Overdue, Search
from perdure.telemetry import Telemetry
from perdure.testing.clock import MovableMachine
from perdure.testing.conformance import Ground, Trial
from perdure.testing.faults import FaultyStore, Outage

DAY = 24 * 3600.0
LIMIT = 20.0
"""Seconds after which a test has failed; nothing waits for this long when all is well."""


@workflow(name="order", version="1")
async def order() -> None:
    """The kind that the suite's rows are of."""


class Told:
    """What sweeps tell the worker: kept, for the test to see. ``steady`` is what its heartbeat says."""

    def __init__(self, found: list[Finding]) -> None:
        self.findings = found
        self.takings: list[tuple[bytes, int | None]] = []
        self.wanted: list[bytes] = []
        self.beats_come_through = True

    def found(self, finding: Finding) -> None:
        self.findings.append(finding)

    def noted(self, notes: Mapping[str, Note], now: int) -> None:
        """No worker holds back kinds here."""

    def taken(self, process: bytes, token: int | None) -> None:
        self.takings.append((process, token))

    def undue(self, processes: Iterable[bytes]) -> None:
        self.wanted += processes

    def steady(self) -> bool:
        return self.beats_come_through


class Watch:
    """A trial, and the wards of the supervisors that watch over it; ``found`` is what they reported."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.store = FaultyStore(ground.store())
        self.machine = MovableMachine(seed=1)
        self.trial = Trial(ground, self.store, self.machine)
        self.found: list[Finding] = []
        self.wards: list[SweepContext] = []

    async def context(self, *hosted: object) -> SweepContext:
        """The ward of one more supervisor, whose worker hosts these workflows."""
        telemetry = Telemetry()
        time = StoreTime(self.machine)
        committer = Committer(self.store, time, self.machine, telemetry)
        committer.open()
        parts = WorkerParts(
            Incarnation(await self.trial.worker("supervising")), self.store, Registry(*hosted), committer, time,
            self.machine, telemetry, WorkerOptions(retention_seconds=DAY, key_retention_seconds=DAY),
        )  # fmt: skip
        context = SweepContext(parts, Told(self.found))
        # No two workers ever look at the same microsecond.
        time.heard(await self.store.now() + len(self.wards), self.machine.monotonic())
        self.wards.append(context)
        return context

    async def passed(self, seconds: float) -> None:
        """Let time pass, for the store and for every supervisor; these go on beating."""
        self.machine.advance(seconds)
        await self.ground.time.advance(seconds)
        for context in self.wards:
            await self.trial.beat(context.incarnation.id)

    async def sound(self, process: Process) -> Process:
        """The row as it is now, after a check that its record breaks no law."""
        whole = await self.trial.whole(process.id)
        run = await self.store.history(process.id, whole.process.run)
        assert unsound(whole.process, run, whole.messages, await self.store.now()) == []
        return whole.process

    async def untouched(self, processes: Sequence[Process]) -> bool:
        """Whether the rows are still as they were."""
        return [await self.sound(process) for process in processes] == list(processes)

    async def at_once(
        self, sweep: Callable[[SweepContext], Awaitable[int]], door: str = "commit", *, behind: bool = False
    ) -> list[int]:
        """Two supervisors sweep at once: neither goes through ``door`` before the other stands there too.

        ``behind`` means that neither hears the store's answer before both are answered.
        """
        both = asyncio.Barrier(2)
        visits = 0

        async def meet(name: str, argument: object) -> None:
            nonlocal visits
            if name == door and visits < 2:
                visits += 1
                await asyncio.wait_for(both.wait(), LIMIT)

        wards = [await self.context(), await self.context()]
        side = "after" if behind else "before"
        setattr(self.store, side, meet)
        try:
            return list(await asyncio.gather(*(sweep(context) for context in wards)))
        finally:
            setattr(self.store, side, _nothing)

    async def after_an_outage(
        self, context: SweepContext, sweep: Callable[[SweepContext], Awaitable[int]], *doors: str
    ) -> int:
        """Sweep while the store is away, then again when it is back; what the second round counted."""
        outage = Outage(*doors).upon(self.store)
        outage.away = True
        with pytest.raises(StoreUnavailable):
            await sweep(context)
        outage.away = False
        return await sweep(context)

    async def overdue(self, what: Overdue) -> int:
        """How many rows the store would show to a sweep."""
        return len(await self.store.search(Search(overdue=what, limit=1000)))


async def _nothing(name: str, argument: object) -> None:
    """Let every call through."""
