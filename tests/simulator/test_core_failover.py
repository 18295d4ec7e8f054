"""Fail-over with loss in virtual time: what was lost is told and held, and nobody silently does it again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from perdure.errors import StoreRegressed
from perdure.kernel.process import Process, Status
from perdure.runtime.options import WorkerOptions
from perdure.store.failover import Lineage
from perdure.testing.simulator import Cluster, History, Swarm, simulate
from tests.simulator.core_failover import failing_over, payment
from tests.simulator.form import enough

MET = {
    "a process was set back", "a process that was set back was held", "a process was lost and started again",
}  # fmt: skip
"""What must have happened in some of its histories."""


def history(seed: int) -> History:
    return simulate(failing_over, seed, workflows=[payment])


def test_what_a_fail_over_loses_is_told_and_held_and_all_ends_well() -> None:
    probes: Counter[str] = Counter()
    for seed in range(15):
        probes += history(seed).check().probes
        if enough(seed, 2) and probes.keys() >= MET:
            break
    assert probes.keys() >= MET


def test_a_claim_waits_although_another_connection_has_met_the_new_server_first() -> None:
    history(6095).check()


def test_a_hold_that_the_next_fail_over_loses_is_made_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        handle = await cluster.client.start(payment, 0)
        await until(cluster, lambda row: row.version == 1)
        for _ in range(2):
            assert [loss.process.id for loss in cluster.fail_over(2)] == [handle.id_bytes]
            await until(cluster, lambda row: row.status is Status.HELD)
        with pytest.raises(StoreRegressed):  # the first who asks is told
            await cluster.client.row(handle.id_bytes)
        await cluster.client.process(handle.id_bytes).resume(who="Ann", why="she has looked")
        assert await handle.result() == 3

    simulate(scenario, workflows=[payment], swarm=Swarm(lag=2)).check()


def test_what_is_set_back_is_held_as_soon_as_it_is_found_however_soon_its_lease_lapses() -> None:
    async def scenario(cluster: Cluster) -> None:
        handle = await cluster.client.start(payment, 0)
        await until(cluster, lambda row: row.version == 1)
        for _ in range(2):  # the second time no round of the sweep is near: it has just made one
            cluster.fail_over(2)
            since = cluster.loop.now
            await until(cluster, lambda row: row.status is Status.HELD)
            assert cluster.loop.now - since < 0.5
        with pytest.raises(StoreRegressed):
            await cluster.client.row(handle.id_bytes)
        await cluster.client.process(handle.id_bytes).resume(who="Ann", why="she has looked")
        assert await handle.result() == 3

    options = WorkerOptions(lease_seconds=5.0, beat_seconds=0.2)
    simulate(scenario, workflows=[payment], swarm=Swarm(lag=2, options=options)).check()


def test_a_hold_draws_a_token_that_nothing_has_which_was_on_its_way_when_claims_were_lost() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.client.start(payment, 0)
        await until(cluster, lambda row: row.version == 1)
        [had] = cluster.rows()
        [loss] = cluster.fail_over(3)
        [row] = cluster.rows()
        assert loss.process.token == had.token > row.token
        await until(cluster, lambda row: row.status is Status.HELD)
        [row] = cluster.rows()
        assert row.token > had.token + 1  # another worker may have claimed it after this one

    simulate(scenario, workflows=[payment], swarm=Swarm(lag=3)).check()


def test_a_process_whose_hold_is_lost_while_others_are_still_being_held_is_held_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(2):
            await cluster.client.start(payment, number)
        while [row.version for row in cluster.rows()] != [1, 1]:
            await asyncio.sleep(0.001)
        assert len(cluster.fail_over(2)) == 2
        await until(cluster, lambda row: row.status is Status.HELD)
        assert [row.status for row in cluster.rows()] == [Status.HELD, Status.RUNNING]
        cluster.fail_over(1)
        assert [row.status for row in cluster.rows()] == [Status.RUNNING] * 2
        while {row.status for row in cluster.rows()} != {Status.HELD}:
            await asyncio.sleep(0.001)

    simulate(scenario, workflows=[payment], swarm=Swarm(lag=2, latencies=(0.01,))).check()


async def until(cluster: Cluster, holds: Callable[[Process], bool]) -> None:
    """Wait until it holds of the first process, and not a moment longer."""
    while not holds(cluster.rows()[0]):
        await asyncio.sleep(0.001)


def test_an_engine_that_compares_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def blind(self: Lineage, connection: object) -> None: ...

    monkeypatch.setattr(Lineage, "_compare", blind)
    broken = (history(seed).violation for seed in range(8, 20))
    assert "set_back_is_held" in (violation.law for violation in broken if violation is not None)


@pytest.mark.long
def test_a_history_with_a_fail_over_is_repeated_by_its_choices() -> None:
    one = history(30)
    again = simulate(failing_over, 30, workflows=[payment], choices=one.choices)
    assert one.digest() == history(30).digest() == again.digest()


def test_a_server_without_a_standby_says_what_is_missing() -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(ValueError, match=r"Swarm\(lag=3\)"):
            cluster.fail_over(1)

    simulate(scenario, workflows=[payment], swarm=Swarm()).check()
