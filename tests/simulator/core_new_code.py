"""Deployments of a machine's class in every weather: old and new code take turns, and no field that either has is lost.

A counter gets a field more, of the same form, then its fields are of another form. Each worker that starts has the code
of the moment or the one before it, as in a deployment that goes wrong half way, or is taken back.
"""

from __future__ import annotations

import asyncio
from typing import Any

from perdure import Handle, Retry, machine, step
from perdure.authoring.registry import Registry
from perdure.errors import CallUnanswered, IllegalMove, StoreUnavailable
from perdure.kernel.process import Status
from perdure.testing.simulator import Cluster

NAMED = {"name": "counter", "version": "1"}
RELEASES = 3


@step(retry=Retry(attempts=40, first=0.2, cap=2.0), timeout=30)
async def weigh(amount: int, seconds: float) -> int:
    """Take a while, and give back what was given."""
    await asyncio.sleep(seconds)
    return amount


class Plain(machine.Machine, **NAMED):
    """The first release."""

    total: int = 0

    @machine.init
    def begun(self) -> None:
        """Nothing is counted yet."""

    @machine.call
    async def add(self, amount: int, seconds: float) -> int:
        """Count, and say which release has done so."""
        self.total += await weigh(amount, seconds)
        return 0

    @machine.call
    def told(self) -> list[int]:
        """What was counted."""
        return [100 * self.total, 0]


def _grown() -> Any:
    """The class of the second release: a module hosts one of a name."""

    class Grown(machine.Machine, **NAMED):
        """The second one counts bonuses too; the old code may run beside it."""

        total: int = 0
        bonus: int = 0

        @machine.init
        def begun(self) -> None:
            """Nothing is counted yet."""

        @machine.call
        async def add(self, amount: int, seconds: float) -> int:
            """Count, and say which release has done so."""
            self.total += await weigh(amount, seconds)
            self.bonus += amount
            return 1

        @machine.call
        def told(self) -> list[int]:
            """What was counted."""
            return [100 * self.total, self.bonus]

    return Grown


def _fine() -> Any:
    """The class of the third release."""

    class Fine(machine.Machine, form=2, **NAMED):
        """The third one counts hundredths."""

        hundredths: int = 0
        bonus: int = 0

        @machine.init
        def begun(self) -> None:
            """Nothing is counted yet."""

        @machine.call
        async def add(self, amount: int, seconds: float) -> int:
            """Count, and say which release has done so."""
            self.hundredths += 100 * await weigh(amount, seconds)
            self.bonus += amount
            return 2

        @machine.call
        def told(self) -> list[int]:
            """What was counted."""
            return [self.hundredths, self.bonus]

        @classmethod
        def upgraded(cls, fields: dict[str, Any], form: int) -> dict[str, Any]:
            """Of the first release as of the second."""
            return {"hundredths": 100 * fields["total"], "bonus": fields.get("bonus", 0)}

    return Fine


CLASSES: tuple[Any, ...] = (Plain, _grown(), _fine())


class Deployment:
    """The release of the moment; a worker that starts has it, or the one before it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.release = 0
        self.over = False
        cluster.registry = self._registry  # type: ignore[method-assign]  # each node's code is that of its start

    def _registry(self) -> Registry:
        back = 0 if self.over or not self.release else self.cluster.draw(2)
        return Registry(CLASSES[self.release - back].begun)

    async def roll_out(self) -> None:
        """Deploy one release after the other: workers start anew one by one; all have the last one only at the end."""
        for release in range(1, RELEASES):
            await asyncio.sleep(self.cluster.pick((2.0, 0.5, 6.0)))
            self.release = release
            await self.start_anew(stay=True)
        await asyncio.sleep(self.cluster.pick((5.0, 0.0, 80.0)))  # if only old code is left, a person sees that at last
        self.over = True
        self.cluster.heal()
        await self.start_anew(stay=False)

    async def start_anew(self, *, stay: bool) -> None:
        """Kill each worker and start it again; some may ``stay`` as they are."""
        for node in self.cluster.workers:
            if stay and self.cluster.draw(2):
                continue
            node.kill()
            node.start()
            await asyncio.sleep(self.cluster.pick((0.5, 0.0, 3.0)))


async def deployments(cluster: Cluster) -> None:
    """Some counters that are called while their class changes; at the end each has all that was ever counted."""
    deployment = Deployment(cluster)
    await deployment.start_anew(stay=False)  # those of before host what the module has
    handles = [
        await cluster.client.start(Plain.begun.options(key=f"counter {n}")) for n in range(cluster.pick((2, 1, 3)))
    ]
    rolling = asyncio.create_task(deployment.roll_out())
    counted = await asyncio.gather(*(_count(cluster, handle, cluster.pick((6, 3, 12))) for handle in handles))
    await rolling
    for handle, (total, bonus) in zip(handles, counted, strict=True):
        told = await _insisted(cluster, handle, "told", [], "told")
        cluster.require("the_value_is_exact", told == [100 * total, bonus], f"{told} of {total} with bonus {bonus}")
        await handle.terminate(who="anna")
    for engine in cluster.engines:
        cluster.probe("a process was left to newer workers", int(engine.telemetry.counters["processes_handed_over"]))


async def _count(cluster: Cluster, handle: Handle[Any], calls: int) -> tuple[int, int]:
    """Call a counter again and again; what it has counted, and as a bonus, by what its answers say."""
    total = bonus = 0
    for number in range(calls):
        amount, seconds = cluster.pick((1, 10)), cluster.pick((0.2, 1.0))
        served = await _insisted(cluster, handle, "add", [amount, seconds], f"add {number}")
        total += amount
        bonus += amount * bool(served)
        await asyncio.sleep(cluster.pick((0.3, 2.0, 0.0)))
    return total, bonus


async def _insisted(cluster: Cluster, handle: Handle[Any], name: str, args: list[Any], key: str) -> Any:
    """Ask under one key until it is answered; a person retries what only old workers had for long."""
    while True:
        try:
            return await handle.call(name, args, key=key, timeout=30)
        except (CallUnanswered, StoreUnavailable, TimeoutError):
            await asyncio.sleep(0.5)
        row = await cluster.client.row(handle.id)
        if row.status is Status.BROKEN:
            known = b"fields of form 2" in (row.error or b"")
            cluster.require("everything_ends", known, f"a counter is broken by {row.error!r}")
            try:
                await handle.retry(who="anna")
            except (IllegalMove, StoreUnavailable):
                await asyncio.sleep(0.5)
