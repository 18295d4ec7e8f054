"""Hearing: a worker has heard what it sent to a process of its own, and the laws are told every answer of a store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from perdure import Engine, machine, step, workflow
from perdure.authoring.attempt import attempt
from perdure.testing.simulator import Cluster, Swarm, simulate
from perdure.testing.simulator.store import SimStore
from tests.simulator.hearing import Hearing
from tests.simulator.ledger import Effect

UNNAMED = frozenset({"read"})
"""Calls that are no method of a store."""


class Court:
    """Who looks on when a step begins."""

    saw: ClassVar[Callable[[Effect], None]]


@step
async def noted(number: int) -> None:
    here = attempt()
    Court.saw(Effect("began", here.process, here.idempotency_key, f"step {number}", here.number, "", 0))


@workflow
async def twenty() -> str:
    for number in range(20):
        await noted(number)
    return "done"


async def told_while_it_works(engine: Engine) -> str:
    """Send a process as many letters from here as it has steps, while it is at work."""
    handle = await engine.start(twenty)
    for number in range(20):
        await handle.signal("letter", number)
    return await handle.result()


def test_rule_18_what_a_worker_has_sent_to_a_process_of_its_own_counts_as_read() -> None:
    async def scenario(cluster: Cluster) -> None:
        Court.saw = Hearing(cluster).saw
        assert await cluster.workers[0].call(told_while_it_works) == "done"

    simulate(scenario, workflows=[twenty], swarm=Swarm(nodes=1)).check()


class Till(machine.Machine):
    """It works on a call for a while."""

    @machine.init
    def opened(self) -> None:
        """It is empty."""

    @machine.call
    async def counted(self) -> str:
        """Twenty steps."""
        for number in range(20):
            await noted(number)
        return "done"

    @machine.signal
    def note(self, number: int) -> None:
        """Nothing comes of it."""


async def told_while_it_answers(engine: Engine) -> str:
    """Send a machine that rests a call, which its commit brings, and letters while it works on that."""
    till = await engine.start(Till.opened)
    await asyncio.sleep(1)
    call = asyncio.create_task(till.call(Till.counted))
    for number in range(20):
        await asyncio.sleep(0.01)
        await till.signal(Till.note, number)
    answer = await call
    await till.terminate(why="all is told")
    return answer


def test_rule_18_a_letter_that_a_commit_has_brought_counts_as_read() -> None:
    async def scenario(cluster: Cluster) -> None:
        Court.saw = Hearing(cluster).saw
        assert await cluster.workers[0].call(told_while_it_answers) == "done"

    simulate(scenario, workflows=[Till], swarm=Swarm(nodes=1)).check()


def test_the_laws_are_told_every_answer_of_a_store() -> None:
    asked: set[str] = set()
    told: set[str] = set()

    def fate(store: SimStore, door: str) -> str:
        asked.add(door)
        return ""

    async def scenario(cluster: Cluster) -> None:
        Court.saw = lambda effect: None
        cluster.server.fate = fate
        cluster.server.told = lambda life, door, given, answer: told.add(door)
        assert await cluster.workers[0].call(told_while_it_works) == "done"

    simulate(scenario, workflows=[twenty], swarm=Swarm(nodes=1)).check()
    assert asked >= {"start", "send", "claim", "commit"}
    assert asked - told <= UNNAMED
