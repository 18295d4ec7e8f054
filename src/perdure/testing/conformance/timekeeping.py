"""The store's clock: the only clock, moved by nobody's wall clock, and never backward (rule 15)."""

from __future__ import annotations

import pytest

from perdure.clock import SECOND
from perdure.kernel.clock import Clock
from perdure.kernel.commit import Verdict
from perdure.kernel.event import Event, EventType
from perdure.testing.conformance.trial import SILENCE, Trial, going_on, only, released


class Timekeeping:
    """``now`` and what depends on it."""

    async def test_rule_15_the_time_is_the_stores_own(self, trial: Trial) -> None:
        assert await trial.store.now() == await trial.time.now()
        moved = await trial.time.advance(12.5)
        assert await trial.store.now() == moved == await trial.time.now()

    async def test_times_come_back_to_the_microsecond(self, trial: Trial) -> None:
        worker = await trial.worker()
        now = await trial.time.now()
        for at in (1, 999_999, 1_000_001, now - 1, now + 1, now + 123_457, (1 << 52) + 1, (1 << 53) - 1):
            row = await trial.owned(worker, deadline=at, created_at=at)
            event = Event(1, 1, EventType.TIMER_FIRED, at, "1", "timer")
            commit = released(row, at, events=(event,))
            after = await trial.done(commit)
            assert (after.deadline, after.created_at, after.due_at) == (at, at, at)
            assert await trial.store.history(row.id, 1) == list(commit.events)

    async def test_the_clock_never_runs_backward(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.started()
        await trial.time.advance(100)
        await trial.beat(worker)
        before = await trial.store.now()
        await trial.time.set_back(3600)
        assert await trial.store.now() >= before
        assert (await trial.beat(worker)).now >= before
        taken = only((await trial.claim(worker)).claimed).process
        assert (taken.opened_at or 0) >= before
        answer = await trial.commit(going_on(taken))
        assert (answer.verdict, answer.now >= before) == (Verdict.APPLIED, True)
        assert (await trial.row(row.id)).changed_at >= before

    async def test_the_clock_does_not_run_backward_over_a_new_opening(self, trial: Trial) -> None:
        if not trial.ground.lasting:
            pytest.skip("this database ends with its store")
        worker = await trial.worker()
        await trial.time.advance(100)
        await trial.beat(worker)
        before = await trial.store.now()
        await trial.store.close()
        await trial.time.set_back(3600)
        again = trial.ground.store()
        await again.open()
        try:
            assert await again.now() >= before
            [known] = await again.workers()
            assert known.due_at == before + SILENCE
        finally:
            await again.close()

    async def test_a_timer_waits_out_a_clock_that_was_set_back(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        due = await trial.time.now() + 10 * SECOND
        await trial.done(released(row, due))
        await trial.beat(worker)
        await trial.time.set_back(5)
        assert (await trial.claim(worker)).claimed == ()
        await trial.time.advance(14.9)
        assert (await trial.claim(worker)).claimed == ()
        await trial.time.advance(0.1)
        assert only((await trial.claim(worker)).claimed).process.id == row.id

    async def test_time_goes_on_at_the_clocks_pace_after_the_clock_was_put_back(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.beat(worker, row)
        await trial.time.advance(3600)
        ahead = (await trial.beat(worker, row)).now
        due = ahead + 10 * SECOND
        await trial.done(released(row, due))
        await trial.time.set_back(3600)
        beaten = await trial.beat(worker)
        assert (beaten.now, beaten.lead) == (ahead, 3600 * SECOND)
        await trial.time.advance(9.9)
        assert (await trial.claim(worker)).claimed == ()
        await trial.time.advance(0.1)
        assert only((await trial.claim(worker)).claimed).process.id == row.id
        assert await trial.store.now() == due

    async def test_a_clock_put_back_by_less_than_a_second_is_waited_for(self, trial: Trial) -> None:
        worker = await trial.worker()
        await trial.time.advance(100)
        before = await trial.beat(worker)
        await trial.time.set_back(0.9)
        after = await trial.beat(worker)
        assert (after.now, after.lead) == (before.now, 0)

    async def test_the_lead_over_the_clock_shrinks_and_time_never_runs_backward(self, trial: Trial) -> None:
        worker = await trial.worker()
        await trial.time.advance(100)
        last = (await trial.beat(worker)).now
        await trial.time.set_back(50)
        leads = []
        for _ in range(8):
            await trial.time.advance(10)
            beaten = await trial.beat(worker)
            assert beaten.now >= last
            last = beaten.now
            leads.append(beaten.lead)
        assert leads == [lead * SECOND // 10 for lead in (400, 399, 398, 397, 396, 395, 394, 393)]
        [clock] = await trial.store.records(Clock)
        assert (clock.version, clock.lead, clock.mending) == (0, leads[-1], False)
        asked = Clock("clock", 1, mending=True, changed_at=last, who="ann", why="a schedule", origin="test")
        [clock] = await trial.store.records(Clock, [asked])
        assert (clock.version, clock.mending, clock.who, clock.why) == (1, True, "ann", "a schedule")
        for _ in range(80):
            await trial.time.advance(1)
            beaten = await trial.beat(worker)
            assert last <= beaten.now, "it never runs backward"
            last = beaten.now
        assert beaten.lead == 0
        [clock] = await trial.store.records(Clock)
        assert (clock.lead, clock.lead_since, clock.mending, clock.at) == (0, None, False, clock.machine_at)

    async def test_what_was_answered_is_there_after_closing_and_opening(self, trial: Trial) -> None:
        if not trial.ground.lasting:
            pytest.skip("this database ends with its store")
        worker = await trial.worker()
        row = await trial.owned(worker, key="order/1")
        await trial.send(row.id)
        await trial.done(going_on(row, steps=3))
        before = await trial.whole(row.id)
        await trial.store.close()
        await trial.store.close()
        again = trial.ground.store()
        await again.open()
        try:
            other = Trial(trial.ground, again)
            assert await other.whole(row.id) == before
            assert (await other.beat(worker, before.process)).lost == ()
        finally:
            await again.close()

    async def test_two_stores_on_one_database_see_each_others_writes_at_once(self, trial: Trial) -> None:
        if not trial.ground.shared:
            pytest.skip("one store at a time on this database")
        second = trial.ground.store()
        await second.open()
        try:
            other = Trial(trial.ground, second)
            worker = await trial.worker()
            row = await trial.started()
            taken = only((await other.claim(worker)).claimed)
            assert taken.process == await trial.row(row.id)
            await trial.done(going_on(taken.process))
            assert await other.whole(row.id) == await trial.whole(row.id)
        finally:
            await second.close()
