"""What a command may do that no commit shall outrun: take one running process from its owner (rule 22)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.kernel.commit import Verdict
from perdure.kernel.process import Status
from perdure.limits import SUSPECT_DEATHS
from perdure.store.notifications import Notification
from perdure.testing.conformance.trial import LEASE, Trial, finished, forced, going_on, only, released, resting

PATIENCE = 5.0
"""Seconds after which a hint that did not come is a failure; nothing waits that long when all is well."""


class Seizing:
    """Claims that seize: from an owner, whether it lives or not, hosted or not; and who is notified."""

    async def test_rule_22_a_seizure_takes_a_process_from_a_live_owner_whatever_its_version(self, trial: Trial) -> None:
        owner, command = await trial.worker(), trial.ids.new_id()
        row = await trial.owned(owner)
        for _ in range(3):
            row = await trial.done(going_on(row))
        await trial.send(row.id)
        taken = only((await trial.claim(command, only=row.id, hosted=(), lease=SECOND, seize=True)).claimed)
        now = await trial.time.now()
        seized = replace(row, token=row.token + 1, owner=command, due_at=now + SECOND, changed_at=now, inbox=1)
        assert taken.process == seized == await trial.row(row.id)
        assert (taken.was_owned_by, len(taken.events), len(taken.messages)) == (owner, 3, 1)

    async def test_law_one_owner_after_a_seizure_only_the_command_may_commit_and_nobody_claims(
        self, trial: Trial
    ) -> None:
        owner, command = await trial.worker(), trial.ids.new_id()
        row = await trial.owned(owner)
        taken = only((await trial.claim(command, only=row.id, hosted=(), lease=SECOND, seize=True)).claimed).process
        assert (await trial.commit(going_on(row))).verdict is Verdict.REFUSED
        assert (await trial.beat(owner, row)).lost == (row.id,)
        assert (await trial.claim(owner)).claimed == ()
        ended = await trial.done(forced(taken, status=Status.CANCELLED, due_at=None))
        assert (ended.token, ended.owner) == (taken.token + 1, None)

    async def test_law_unfinished_is_due_a_command_that_dies_leaves_a_lease_that_lapses(self, trial: Trial) -> None:
        owner, command = await trial.worker(), trial.ids.new_id()
        row = await trial.owned(owner)
        taken = only((await trial.claim(command, only=row.id, hosted=(), lease=SECOND, seize=True)).claimed).process
        await trial.time.advance(1)
        again = only((await trial.claim(owner)).claimed)
        assert (again.process.token, again.was_owned_by) == (taken.token + 1, command)

    async def test_a_seizure_leaves_alone_what_nobody_owns(self, trial: Trial) -> None:
        worker = await trial.worker()
        later = await trial.time.now() + 3600 * SECOND
        asleep = await trial.done(released(await trial.owned(worker), later))
        idle = await trial.done(resting(await trial.owned(worker), later))
        delayed = await trial.started(due_at=later)
        foreign = await trial.started(kind="refund", due_at=later)
        suspect = await trial.started(deaths=SUSPECT_DEATHS)
        due = await trial.started()
        for row in (asleep, idle, delayed, foreign, suspect, due):
            assert (await trial.claim(trial.ids.new_id(), only=row.id, hosted=(), seize=True)).claimed == ()
            assert await trial.row(row.id) == row

    async def test_a_seizure_takes_a_process_from_an_owner_whose_lease_is_over(self, trial: Trial) -> None:
        worker, command = await trial.worker(), trial.ids.new_id()
        row = await trial.owned(worker)
        await trial.time.advance(LEASE / SECOND + 1)
        taken = only((await trial.claim(command, only=row.id, hosted=(), seize=True)).claimed)
        assert (taken.process.owner, taken.process.token, taken.was_owned_by) == (command, row.token + 1, worker)

    async def test_a_seizure_leaves_alone_what_does_not_run(self, trial: Trial) -> None:
        worker = await trial.worker()
        now = await trial.time.now()
        held = await trial.done(resting(await trial.owned(worker), now, Status.HELD))
        broken = await trial.done(resting(await trial.owned(worker), now, Status.BROKEN))
        ended = await trial.done(finished(await trial.owned(worker)))
        for row in (held, broken, ended):
            assert (await trial.claim(trial.ids.new_id(), only=row.id, hosted=(), seize=True)).claimed == ()
            assert await trial.row(row.id) == row
        assert (await trial.claim(worker, only=trial.ids.new_id(), hosted=(), seize=True)).claimed == ()

    async def test_rule_6_a_seizure_waits_a_moment_for_a_lock_and_then_takes_nothing(self, trial: Trial) -> None:
        if not trial.ground.locks_rows:
            pytest.skip("this database locks no single rows")
        row = await trial.owned(await trial.worker())
        command = trial.ids.new_id()
        async with trial.ground.locked(row.id):
            assert (await trial.claim(command, only=row.id, hosted=(), seize=True)).claimed == ()
        assert len((await trial.claim(command, only=row.id, hosted=(), seize=True)).claimed) == 1

    async def test_an_owner_hears_that_his_process_was_seized(self, trial: Trial) -> None:
        row = await trial.owned(await trial.worker())
        command = trial.ids.new_id()
        await self._heard(trial, row.id, lambda: trial.claim(command, only=row.id, hosted=(), lease=LEASE, seize=True))

    async def test_an_owner_hears_that_a_command_took_his_process(self, trial: Trial) -> None:
        row = await trial.owned(await trial.worker())
        later = await trial.time.now() + 3600 * SECOND
        held = forced(row, status=Status.HELD, due_at=later, reminder=True)
        await self._heard(trial, row.id, lambda: trial.commit(held))

    async def _heard(self, trial: Trial, process: bytes, take: Callable[[], Awaitable[object]]) -> None:
        """Another store on this database is notified of the process, or of any process."""
        if not (trial.ground.hints and trial.ground.shared):
            pytest.skip("nobody elsewhere is told anything here")
        elsewhere = trial.ground.store()
        await elsewhere.open()
        heard: asyncio.Queue[Notification] = asyncio.Queue()
        stop = elsewhere.watch(heard.put_nowait)
        try:
            await take()
            async with asyncio.timeout(PATIENCE):
                while not ((notification := await heard.get()).told or notification.some_due):
                    pass
            assert notification.some_due or notification.told == (process,)
        finally:
            stop()
            await elsewhere.close()
