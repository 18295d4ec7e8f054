"""A lapsed lease is claimed before a sweep has seen its owner die: in the grace a free lock is no evidence yet."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perdure import limits
from perdure.clock import SECOND
from perdure.kernel.claim import Claimed
from perdure.runtime.holder import Holder
from perdure.runtime.release import without_the_dead
from perdure.runtime.sweeps import worker_dead, worker_silent
from perdure.runtime.sweeps.context import SweepContext
from perdure.testing.conformance.trial import SILENCE
from tests.sweeps.test_worker_dead import Victim, victim
from tests.sweeps.watch import Watch, order

GRACE_SECONDS = 0.001


class Sessions:
    """Since when the sessions of the database stand, as the store tells; and what happens between the two looks."""

    def __init__(self, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
        self.since: float | None = None
        self.looks = 0
        self.asked: list[object] = []
        self.between: Any = None
        watch.store.before = self._visit
        backend = type(watch.store.backend)
        monkeypatch.setattr(backend, "standing_since", property(lambda backend: self.since))
        monkeypatch.setattr(limits, "PROBE_GRACE_SECONDS", GRACE_SECONDS)

    async def _visit(self, name: str, argument: object) -> None:
        if name != "workers":
            return
        self.looks += 1
        self.asked.append(argument)
        if self.looks == 2 and self.between is not None:
            await self.between()


async def lapsed(watch: Watch) -> tuple[SweepContext, Victim, list[Claimed]]:
    """A process whose lease has lapsed, its owner, whose lock is free, and the claim of another worker."""
    context, owner = await watch.context(order), await victim(watch)
    await owner.trial.owned(owner.id)
    await owner.die()
    await watch.passed(SILENCE / SECOND + 1)
    [claimed] = (await watch.trial.claim(context.incarnation.id)).claimed
    assert claimed.was_owned_by == owner.id
    return context, owner, [claimed]


async def went_on(context: SweepContext, claimed: list[Claimed]) -> bool:
    """Whether the worker may go on with what it has claimed at once."""
    return await without_the_dead(cast(Holder, SimpleNamespace(parts=context)), claimed) == claimed


async def test_rule_12_in_the_grace_a_process_is_not_blamed_for_an_owner_that_comes_back(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, owner, claimed = await lapsed(watch)
    sessions = Sessions(watch, monkeypatch)
    sessions.since = watch.machine.monotonic()

    async def comes_back() -> None:
        watch.machine.advance(GRACE_SECONDS)
        await watch.trial.beat(owner.id)

    sessions.between = comes_back
    assert await went_on(context, claimed)
    assert sessions.asked == [{owner.id}, {owner.id}], "of all that have ended in a day only the owner is read"
    assert (await watch.sound(claimed[0].process)).deaths == 0


@pytest.mark.parametrize("begun", ["lost", "back during the grace"])
async def test_rule_12_a_free_lock_tells_nothing_if_our_own_session_was_lost_meanwhile(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, begun: str
) -> None:
    context, _, claimed = await lapsed(watch)
    sessions = Sessions(watch, monkeypatch)
    sessions.since = math.inf if begun == "lost" else watch.machine.monotonic()

    async def comes_back() -> None:
        watch.machine.advance(GRACE_SECONDS)
        sessions.since = math.inf if begun == "lost" else watch.machine.monotonic()

    sessions.between = comes_back
    assert await went_on(context, claimed)
    assert (await watch.sound(claimed[0].process)).deaths == 0


async def test_rule_12_after_the_grace_the_death_of_an_owner_that_stays_away_counts(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, _, claimed = await lapsed(watch)
    sessions = Sessions(watch, monkeypatch)
    sessions.since = watch.machine.monotonic()
    assert not await went_on(context, claimed)
    assert (await watch.sound(claimed[0].process)).deaths == 1


@pytest.mark.parametrize("standing", [True, False], ids=["for long", "no sessions"])
async def test_rule_12_where_sessions_stand_for_long_one_look_at_the_owner_of_a_lapsed_lease_is_enough(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, standing: bool
) -> None:
    context, _, claimed = await lapsed(watch)
    sessions = Sessions(watch, monkeypatch)
    sessions.since = watch.machine.monotonic() - 2 * GRACE_SECONDS if standing else None
    assert not await went_on(context, claimed)
    assert sessions.looks == 1
    assert (await watch.sound(claimed[0].process)).deaths == 1


async def test_rule_12_in_the_grace_a_silent_worker_whose_lock_is_free_is_not_ended_yet(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, owner = await watch.context(), await victim(watch)
    row = await owner.trial.owned(owner.id)
    await owner.die()
    await watch.passed(SILENCE / SECOND + 1)
    sessions = Sessions(watch, monkeypatch)
    sessions.since = watch.machine.monotonic()
    assert await worker_silent.sweep(context) == 0
    assert await watch.untouched([row])
    await watch.passed(GRACE_SECONDS)
    assert await worker_silent.sweep(context) == 1
    assert await worker_dead.sweep(context, worker_dead.Looks()) == 0
