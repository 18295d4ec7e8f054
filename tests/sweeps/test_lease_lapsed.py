"""Stuck: a lease lapses although its worker beats. Who hosts the kind claims the row; the sweep frees all others."""

from __future__ import annotations

import pytest

from perdure import limits
from perdure.clock import SECOND
from perdure.kernel.commit import Verdict
from perdure.kernel.process import Process
from perdure.runtime.sweeps import lease_lapsed
from perdure.runtime.sweeps.context import SweepContext
from perdure.testing.conformance.trial import LEASE, going_on
from tests.sweeps.watch import Watch, order

LAPSED = LEASE / SECOND + 1


async def beating(watch: Watch, rows: int = 1) -> list[Process]:
    """Rows whose owner lives and beats, but has let their leases lapse."""
    owner = await watch.trial.worker("forgetful")
    held = [await watch.trial.owned(owner) for _ in range(rows)]
    await watch.passed(LAPSED / 2)
    await watch.trial.beat(owner)
    await watch.passed(LAPSED / 2)
    await watch.trial.beat(owner)
    return held


async def test_a_lapsed_lease_of_a_kind_not_hosted_here_is_freed_and_its_owner_fenced_off(watch: Watch) -> None:
    context = await watch.context()
    [row] = await beating(watch)
    neighbours = [await watch.trial.owned(await watch.trial.worker("alive")), await watch.trial.started()]
    assert await lease_lapsed.sweep(context) == 1
    freed = await watch.sound(row)
    assert (freed.owner, freed.token, freed.due_at) == (None, row.token + 1, await watch.store.now())
    assert (await watch.trial.commit(going_on(row))).verdict is Verdict.REFUSED
    assert await watch.untouched(neighbours)
    assert await lease_lapsed.sweep(context) == 0


async def test_rule_13_a_lapsed_lease_is_no_evidence_of_a_death(watch: Watch) -> None:
    context = await watch.context()
    [row] = await beating(watch)
    assert await lease_lapsed.sweep(context) == 1
    assert (await watch.sound(row)).deaths == 0


async def test_a_lapsed_lease_of_a_hosted_kind_is_left_to_the_claim(watch: Watch) -> None:
    context = await watch.context(order)
    [row] = await beating(watch)
    assert await lease_lapsed.sweep(context) == 0
    [taken] = (await watch.trial.claim(context.incarnation.id)).claimed
    assert (taken.process.id, taken.process.token, taken.was_owned_by) == (row.id, row.token + 1, row.owner)


async def test_a_row_that_we_hold_ourselves_is_let_go_at_once(watch: Watch) -> None:
    context = await watch.context()
    taken: list[tuple[bytes, int | None]] = []
    context.taken = lambda *one: taken.append(one)
    [row] = await beating(watch)
    await lease_lapsed.sweep(context)
    assert taken == [(row.id, row.token + 1)]


async def test_two_supervisors_at_once_count_a_lapsed_lease_once(watch: Watch) -> None:
    rows = await beating(watch, 4)
    assert sum(await watch.at_once(lease_lapsed.sweep)) == 4
    for row in rows:
        assert (await watch.sound(row)).token == row.token + 1


async def test_a_round_frees_a_bounded_batch_of_lapsed_leases(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS", 2)
    context = await watch.context()
    await beating(watch, 3)
    assert [await lease_lapsed.sweep(context) for _ in range(3)] == [2, 1, 0]


async def test_after_a_store_error_the_next_round_finds_the_lapsed_lease_again(watch: Watch) -> None:
    context: SweepContext = await watch.context()
    await beating(watch)
    assert await watch.after_an_outage(context, lease_lapsed.sweep, "search") == 1
