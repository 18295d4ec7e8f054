"""What a commit removes with its process, or of it: at once, in the one transaction, and never against the fence."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.kernel.commit import Commit, Removal, Start, StartVerdict, Verdict
from perdure.kernel.debounce import begun
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import SendVerdict
from perdure.kernel.names import DEBOUNCED
from perdure.kernel.process import Process, Status
from perdure.store.base import Pruned, Search
from perdure.testing.conformance.trial import Trial, finished, forced, going_on


def removing(row: Process) -> Commit:
    """The commit that removes a process that has ended."""
    after = replace(row, version=row.version + 1, token=row.token + 1)
    return Commit(row.token, row.version, after, removes=Removal.PROCESS)


def releasing(row: Process) -> Commit:
    """The commit that gives back the key of a process that has ended."""
    event = Event(row.events + 1, 0, EventType.KEY_RELEASED, row.changed_at, payload=b'{"who":"anna"}')
    after = replace(row, key=None, version=row.version + 1, token=row.token + 1, events=row.events + 1)
    return Commit(row.token, row.version, after, (event,), removes=Removal.KEY)


def _terminated(row: Process) -> Commit:
    return forced(row, EventType.TERMINATED, status=Status.CANCELLED, due_at=None)


def retried(row: Process) -> Commit:
    """The commit that opens the next run of a process that has ended."""
    opened = Event(1, 0, EventType.RUN_OPENED, at=row.created_at, payload=b'{"from_run":1,"kept":0}')
    again = replace(row, run=row.run + 1, events=1, status=Status.RUNNING, due_at=row.created_at)
    again = replace(again, version=row.version + 1, token=row.token + 1)
    return Commit(row.token, row.version, again, (opened,), offered=2)


class Removing:
    """Removal of one process, and release of its key."""

    async def _terminated(self, trial: Trial, **fields: object) -> Process:
        row = await trial.done(going_on(await trial.owned(await trial.worker(), **fields), steps=3))
        await trial.send(row.id)
        return await trial.done(_terminated(await trial.row(row.id)))

    async def _is_gone(self, trial: Trial, id: bytes) -> bool:
        there = await trial.store.search(Search(ids=(id,)))
        return not (there or await trial.store.history(id, 1) or await trial.store.messages([(id, 0)]))

    async def test_a_removed_process_is_gone_with_its_events_and_messages_and_nothing_else_is(
        self, trial: Trial
    ) -> None:
        row = await self._terminated(trial)
        neighbour = await self._terminated(trial)
        before = await trial.whole(neighbour.id)
        assert (await trial.commit(removing(row))).verdict is Verdict.APPLIED
        assert await self._is_gone(trial, row.id)
        assert await trial.whole(neighbour.id) == before
        assert await trial.store.prune(0, SECOND, 100) == Pruned(1, 0)

    async def test_rule_05_a_removal_sent_again_is_answered_as_the_first_time(self, trial: Trial) -> None:
        row = await self._terminated(trial)
        for _ in range(2):
            assert (await trial.commit(removing(row))).verdict is Verdict.APPLIED
        assert await trial.stored() == []

    async def test_a_removal_with_an_old_fence_removes_nothing(self, trial: Trial) -> None:
        row = await self._terminated(trial)
        again = await trial.done(forced(row, status=Status.RUNNING))
        assert (await trial.commit(removing(row))).verdict is Verdict.REFUSED
        assert (await trial.commit(removing(replace(again, token=row.token)))).verdict is Verdict.REFUSED
        assert await trial.stored() == [again]

    async def test_a_late_commit_of_an_old_worker_does_not_bring_a_removed_process_back(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        forcing = _terminated(row)
        await trial.commit(replace(forcing, removes=Removal.PROCESS))
        for late in (going_on(row), forced(row), finished(row)):
            assert (await trial.commit(late)).verdict is Verdict.REFUSED
        assert (await trial.send(row.id)).verdict is SendVerdict.NOT_FOUND
        assert (await trial.beat(worker, row)).lost == (row.id,)
        assert await self._is_gone(trial, row.id)

    async def test_law_3_what_ends_and_goes_in_one_commit_has_told_others_and_heard_all(self, trial: Trial) -> None:
        worker = await trial.worker()
        parent, row = await trial.owned(worker), await trial.owned(worker)
        last = replace(finished(row), removes=Removal.PROCESS, sends=(trial.signal(parent.id),))
        await trial.send(row.id)
        assert (await trial.commit(last)).verdict is Verdict.READ_FIRST
        assert not await trial.store.messages([(parent.id, 0)])
        heard = replace(last, after=replace(last.after, seen=1), consumed=((1, 0),))
        assert (await trial.commit(heard)).verdict is Verdict.APPLIED
        assert await self._is_gone(trial, row.id)
        assert len(await trial.store.messages([(parent.id, 0)])) == 1

    async def test_a_batch_removes_what_it_is_told_to_and_writes_the_rest(self, trial: Trial) -> None:
        worker = await trial.worker()
        ended = [await self._terminated(trial, key=f"order/{n}") for n in range(3)]
        child, going = await trial.owned(worker), await trial.owned(worker)
        told = replace(finished(child), sends=(trial.signal(ended[0].id),))  # its target goes in the same batch
        batch = [going_on(going), removing(ended[0]), told, releasing(ended[1])]
        assert [answer.verdict for answer in await trial.store.commit(batch)] == [Verdict.APPLIED] * 4
        assert await self._is_gone(trial, ended[0].id)
        kept = {row.id: row for row in await trial.stored()}
        assert set(kept) == {ended[1].id, ended[2].id, child.id, going.id}
        assert (kept[ended[1].id].key, kept[ended[2].id].key) == (None, "order/2")
        assert kept[going.id].events == going.events + 1

    async def test_rule_6_a_removal_of_a_locked_row_is_tried_again_later(self, trial: Trial) -> None:
        if not trial.ground.locks_rows:
            pytest.skip("this database locks no single rows")
        row = await self._terminated(trial)
        async with trial.ground.locked(row.id):
            assert (await trial.commit(removing(row))).verdict is Verdict.BUSY
        assert await trial.stored() == [row]
        assert (await trial.commit(removing(row))).verdict is Verdict.APPLIED

    async def test_rule_24_the_key_of_a_removed_process_is_free(self, trial: Trial) -> None:
        row = await self._terminated(trial, key="order/1")
        await trial.commit(removing(row))
        [answer] = await trial.store.start([Start(trial.process(key="order/1", input=b"[2]"))])
        assert answer.verdict is StartVerdict.CREATED

    async def test_rule_24_a_released_key_is_free_and_its_process_stays(self, trial: Trial) -> None:
        row = await self._terminated(trial, key="order/1")
        [taken] = await trial.store.start([Start(trial.process(key="order/1"))])
        assert (taken.verdict, taken.id) == (StartVerdict.EXISTS, row.id)
        for _ in range(2):  # rule 5: sent again
            assert (await trial.commit(releasing(row))).verdict is Verdict.APPLIED
        kept = await trial.row(row.id)
        assert (kept.key, kept.status, kept.version, kept.events) == (None, row.status, row.version + 1, row.events + 1)
        assert (await trial.store.history(row.id, 1))[-1].type is EventType.KEY_RELEASED
        [fresh] = await trial.store.start([Start(trial.process(key="order/1"))])
        assert fresh.verdict is StartVerdict.CREATED
        assert (await trial.commit(releasing(row))).verdict is Verdict.APPLIED
        assert (await trial.row(fresh.id)).key == "order/1"
        await trial.time.advance(10)
        assert await trial.store.prune(SECOND, 24 * 3600 * SECOND, 100) == Pruned(1, 0)
        [again] = await trial.store.start([Start(trial.process(key="order/1"))])
        assert (again.verdict, again.id) == (StartVerdict.EXISTS, fresh.id)

    async def test_a_process_that_goes_on_gives_its_key_back_under_the_fence_alone(self, trial: Trial) -> None:
        key = f"{DEBOUNCED}user-7"
        row = await trial.owned(await trial.worker(), key=key)
        stale = replace(begun(row, now=row.created_at), token=row.token - 1)
        assert (await trial.commit(stale)).verdict is Verdict.REFUSED
        assert (await trial.row(row.id)).key == key
        for _ in range(2):  # rule 5: sent again
            assert (await trial.commit(begun(row, now=row.created_at))).verdict is Verdict.APPLIED
        after = await trial.row(row.id)
        assert (after.key, after.owner, after.status, after.token) == (None, None, Status.RUNNING, row.token)
        [fresh] = await trial.store.start([Start(trial.process(key=key))])
        assert fresh.verdict is StartVerdict.CREATED

    async def test_the_former_runs_of_one_process_are_removed_in_portions_and_the_last_one_stays(
        self, trial: Trial, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for place in ("perdure.limits.PRUNED_EVENTS", "perdure.store.sqlite.upkeep.EVENTS_PRUNED_AT_ONCE"):
            monkeypatch.setattr(place, 2)
        row = await self._terminated(trial)
        neighbour = await self._terminated(trial)
        before = await trial.whole(neighbour.id)
        for _ in range(3):
            row = await trial.done(_terminated(await trial.done(retried(row))))
        portions = 0
        while (found := await trial.store.prune(0, 0, 0, of=(row.id, row.version))).runs:
            portions += 1
            assert (found.processes, found.keys) == (0, 0)
        assert portions > 1
        left = [len(await trial.store.history(row.id, run)) for run in (1, 2, 3, 4)]
        assert left == [0, 0, 2, 2]
        assert await trial.row(row.id) == row
        assert await trial.whole(neighbour.id) == before
        assert (await trial.commit(removing(row))).verdict is Verdict.APPLIED
        assert await self._is_gone(trial, row.id)

    async def test_the_former_runs_and_keys_of_a_process_that_has_gone_on_since_stay(self, trial: Trial) -> None:
        row = await trial.owned(await trial.worker())
        await trial.send(row.id, key="k1")
        heard = await trial.done(going_on(row, consumed=((1, row.events + 1),), seen=1))
        row = await trial.done(_terminated(heard))
        for _ in range(3):
            row = await trial.done(_terminated(await trial.done(retried(row))))
        before = await trial.done(retried(row))
        runs = [await trial.store.history(row.id, run) for run in (1, 2, 3, 4, 5)]
        assert await trial.store.prune(0, 0, 0, of=(row.id, row.version)) == Pruned(0, 0)
        assert await trial.row(row.id) == before
        assert [await trial.store.history(row.id, run) for run in (1, 2, 3, 4, 5)] == runs
        assert (await trial.send(row.id, key="k1")).verdict is SendVerdict.DUPLICATE
