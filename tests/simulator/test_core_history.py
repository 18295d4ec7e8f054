"""Histories: a small scenario lives through storms, the same seed repeats it, and what would leave it is refused."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time

import pytest

from perdure import receive, step, workflow
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.file import SqliteFile
from perdure.testing.simulator import Cluster, Escape, History, Swarm, database, simulate
from perdure.turns.loop import TurnLoop
from tests.simulator.campaign import APART
from tests.simulator.core_pairs import calls, pair, ten_pairs
from tests.simulator.form import WHOLE, seeds


def history(seed: int) -> History:
    calls.clear()
    return simulate(ten_pairs, seed, workflows=[pair])


@pytest.mark.parametrize("seed", seeds(3, 25))
def test_ten_processes_end_well_whatever_happens_to_two_workers(seed: int) -> None:
    history(seed).check()


def test_in_calm_weather_every_step_is_called_once() -> None:
    calls.clear()
    calm = simulate(ten_pairs, workflows=[pair], swarm=Swarm()).check()
    assert set(calls.values()) == {1} and len(calls) == 10
    assert calm.seconds < 5 and not calm.faults


def test_a_seed_and_its_recorded_choices_give_the_same_history_to_the_byte() -> None:
    for seed in seeds(2, 5):
        first, second = history(seed), history(seed)
        repeated = simulate(ten_pairs, seed, workflows=[pair], choices=first.choices)
        assert list(first.log.lines()) == list(second.log.lines()) == list(repeated.log.lines())
        assert first.choices == second.choices == repeated.choices


@pytest.mark.long
def test_the_same_seed_gives_the_same_history_under_two_hash_seeds() -> None:
    """Else the order of a set decides something, as of ids whose hashes are others in each program."""
    code = (
        "import sys; from perdure.testing.simulator import simulate; "
        "from perdure.testing.simulator.campaign import hosted_in, scenario_of; "
        "[print(name, simulate(one, 1, workflows=hosted_in(one)).digest()) "
        "for name in sys.argv[1:] for one in [scenario_of('tests.simulator.' + name)]]"
    )
    names = ["core_pairs:ten_pairs", *(APART if WHOLE else ("core_brought:lists", "core_machines:tills"))]
    told = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", code, *names]
        told.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(told) == 1


def test_a_database_that_a_history_has_used_is_as_a_new_one() -> None:
    def made() -> Connection:
        return Connection(SqliteFile(None))

    lent = [database.lent(made) for _ in range(3)]  # more than have ever been given back
    new = list(lent[-1].raw.iterdump())
    for one in lent:
        database.given_back(one)
    for seed in range(3):
        history(seed)
        used = database.lent(made)
        assert list(used.raw.iterdump()) == new
        database.given_back(used)


@pytest.mark.parametrize("killed", [False, True])
def test_what_workers_have_in_memory_is_evicted_with_their_history(killed: bool) -> None:
    """Else Python frees it some time later, and the clean-up of its code fails there without a loop."""
    kept: list[TurnLoop] = []

    @workflow
    async def waits() -> None:
        await receive("never")

    async def scenario(cluster: Cluster) -> None:
        handle = await cluster.client.start(waits)
        await asyncio.sleep(5.0)
        for node in cluster.workers:
            assert node.engine is not None and node.engine.worker is not None
            kept.extend(instance.loop for instance in node.engine.worker.scheduler.cache._instances.values())
            if killed:
                node.kill()
        assert [loop.dead for loop in kept] == [False]
        await handle.terminate(who="Ann")

    simulate(scenario, workflows=[waits], swarm=Swarm()).check()
    assert [loop.dead for loop in kept] == [True]


@pytest.mark.parametrize("pause", [0.0, 0.0005, 0.001])
def test_a_history_that_turns_in_a_circle_ends_although_its_time_goes_on(pause: float) -> None:
    async def circle(cluster: Cluster) -> None:
        while True:
            await asyncio.sleep(pause)

    violation = simulate(circle, workflows=[pair], swarm=Swarm()).violation
    assert violation is not None and violation.law == "no_circle"


def test_a_history_that_waits_for_minutes_with_its_workers_idle_is_no_circle() -> None:
    async def waiting(cluster: Cluster) -> None:
        await asyncio.sleep(120.0)

    simulate(waiting, workflows=[pair], swarm=Swarm(nodes=4)).check()


@pytest.mark.parametrize(
    "way_out", [lambda: time.time(), lambda: threading.Thread(target=print).start(), lambda: os.urandom(4)]
)
def test_a_step_that_reaches_for_the_real_machine_ends_the_history(way_out: object) -> None:
    @step
    async def escapes() -> None:
        way_out()  # type: ignore[operator]

    @workflow
    async def runaway() -> None:
        await escapes()

    async def scenario(cluster: Cluster) -> None:
        await (await cluster.client.start(runaway)).result()

    assert isinstance(simulate(scenario, workflows=[runaway], swarm=Swarm()).violation, Escape)


def test_a_plain_step_runs_in_a_virtual_thread() -> None:
    @step
    def adds(number: int) -> int:
        return number + 1

    @workflow
    async def added() -> int:
        return await adds(await adds(40))

    async def scenario(cluster: Cluster) -> None:
        cluster.require("value", await (await cluster.client.start(added)).result() == 42, "the steps have run")

    assert simulate(scenario, workflows=[added], swarm=Swarm()).violation is None


def test_an_error_that_nobody_reads_fails_its_history_also_if_the_task_is_cancelled_afterwards() -> None:
    async def failing() -> None:
        raise ValueError("a slip of the pen")

    async def failed() -> asyncio.Task[None]:
        task = asyncio.create_task(failing())
        await asyncio.sleep(1)
        return task

    async def forgotten(cluster: Cluster) -> None:
        await failed()

    async def cancelled(cluster: Cluster) -> None:
        (await failed()).cancel()

    async def read(cluster: Cluster) -> None:
        (await failed()).exception()

    found = [simulate(one, workflows=[pair], swarm=Swarm()).violation for one in (forgotten, cancelled, read)]
    assert [one and one.law for one in found] == ["nothing_unexpected", "nothing_unexpected", None]
