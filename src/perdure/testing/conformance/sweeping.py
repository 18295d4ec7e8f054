"""What the store finds for the sweeps: each kind of overdue row, bounded, the longest overdue first."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.kernel.process import Process, Status
from perdure.store.base import Overdue, Search
from perdure.testing.conformance.lettering import bulk, inside
from perdure.testing.conformance.trial import Trial, finished, forced, going_on, only, released, resting


class Sweeping:
    """The named queries of the supervisor."""

    async def _found(self, trial: Trial, what: Overdue, limit: int = 100, owner: bytes | None = None) -> list[bytes]:
        found = await trial.store.search(Search(overdue=what, limit=limit, owner=owner))
        assert found == [await trial.row(row.id) for row in found]
        return [row.id for row in found]

    async def test_orphaned_rows_are_those_of_ended_incarnations(self, trial: Trial) -> None:
        dead, left, alive = [await trial.worker(name) for name in ("dead", "left", "alive")]
        rows = []
        for worker in (dead, alive, left, dead):
            rows.append(await trial.owned(worker))
            await trial.time.advance(1)
        await trial.done(released(await trial.owned(dead), await trial.time.now() + SECOND))
        await trial.done(finished(await trial.owned(dead)))
        assert await self._found(trial, Overdue.ORPHANED) == []
        await trial.store.retire(dead, None, True)
        await trial.store.retire(left, None, False)
        assert await self._found(trial, Overdue.ORPHANED) == [rows[0].id, rows[2].id, rows[3].id]
        assert await self._found(trial, Overdue.ORPHANED, limit=2) == [rows[0].id, rows[2].id]
        await trial.done(forced(rows[0], deaths=1))
        assert await self._found(trial, Overdue.ORPHANED) == [rows[2].id, rows[3].id]

    async def test_an_orphaned_row_freed_by_two_supervisors_is_freed_once(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.store.retire(worker, None, True)
        [found] = await trial.store.search(Search(overdue=Overdue.ORPHANED))
        one = forced(found, deaths=1, payload=b'{"supervisor":1}')
        two = forced(found, deaths=1, payload=b'{"supervisor":2}')
        answers = [(await trial.commit(commit)).verdict for commit in (one, two)]
        assert answers == ["applied", "refused"]
        assert ((await trial.row(row.id)).deaths, await self._found(trial, Overdue.ORPHANED)) == (1, [])

    async def test_lapsed_rows_are_owned_running_and_past_their_lease(self, trial: Trial) -> None:
        worker, other = await trial.worker(), await trial.worker("there")
        rows = []
        for _ in range(3):
            rows.append(await trial.owned(worker))
            await trial.time.advance(1)
        assert await self._found(trial, Overdue.LAPSED) == []
        await trial.time.advance(14)
        assert await self._found(trial, Overdue.LAPSED) == [row.id for row in rows]
        assert await self._found(trial, Overdue.LAPSED, limit=1) == [rows[0].id]
        only((await trial.claim(other, only=rows[0].id)).claimed)
        await trial.beat(worker, rows[1])
        assert await self._found(trial, Overdue.LAPSED) == [rows[2].id]

    async def test_expired_rows_are_unfinished_and_past_their_deadline_whoever_has_them(self, trial: Trial) -> None:
        worker = await trial.worker()
        now = await trial.time.now()
        owned = await trial.owned(worker, deadline=now + 9 * SECOND)
        ended = await trial.owned(worker, deadline=now + SECOND)
        held = await trial.owned(worker, deadline=now + 7 * SECOND)
        await trial.done(finished(ended))
        await trial.done(resting(held, now, Status.HELD))
        free = await trial.started(deadline=now + 8 * SECOND, due_at=now + 3600 * SECOND)
        await trial.started(deadline=now + 11 * SECOND)
        await trial.started()
        assert await self._found(trial, Overdue.EXPIRED) == []
        await trial.time.advance(9)
        assert await self._found(trial, Overdue.EXPIRED) == [held.id, free.id, owned.id]
        assert await self._found(trial, Overdue.EXPIRED, limit=2) == [held.id, free.id]

    async def test_idle_rows_are_those_whose_reminder_is_due(self, trial: Trial) -> None:
        worker = await trial.worker()
        now = await trial.time.now()
        rows: list[Process] = []
        for seconds, status in ((5, Status.HELD), (3, Status.BROKEN), (4, Status.RUNNING), (6, Status.HELD)):
            row = await trial.owned(worker)
            rows.append(await trial.done(resting(row, now + seconds * SECOND, status)))
        await trial.started(due_at=now + SECOND)
        await trial.owned(worker)
        assert await self._found(trial, Overdue.IDLE) == []
        await trial.time.advance(5)
        assert await self._found(trial, Overdue.IDLE) == [rows[1].id, rows[2].id, rows[0].id]
        assert await self._found(trial, Overdue.IDLE, limit=1) == [rows[1].id]
        await trial.done(resting(rows[1], now + 3600 * SECOND, Status.BROKEN))
        await trial.send(rows[2].id)
        assert await self._found(trial, Overdue.IDLE) == [rows[0].id]

    async def test_owned_rows_are_those_of_the_worker_asked_for(self, trial: Trial) -> None:
        worker, other = await trial.worker(), await trial.worker("there")
        rows = []
        for _ in range(3):
            rows.append(await trial.owned(worker))
            await trial.time.advance(1)
        foreign = await trial.owned(other)
        await trial.done(released(await trial.owned(worker), 0))
        assert await self._found(trial, Overdue.OWNED, owner=worker) == [row.id for row in rows]
        assert await self._found(trial, Overdue.OWNED, limit=2, owner=worker) == [row.id for row in rows[:2]]
        assert await self._found(trial, Overdue.OWNED, owner=other) == [foreign.id]
        assert await self._found(trial, Overdue.OWNED, owner=trial.ids.new_id()) == []

    async def test_unhosted_rows_are_running_free_and_due_for_more_than_a_minute(self, trial: Trial) -> None:
        worker = await trial.worker()
        now = await trial.time.now()
        late = await trial.started(due_at=now + SECOND, kind="unknown")
        early = await trial.started(kind="unknown")
        await trial.started(due_at=now + 3600 * SECOND)
        await trial.done(resting(await trial.owned(worker), now))
        await trial.done(resting(await trial.owned(worker), now, Status.HELD))
        await trial.done(finished(await trial.owned(worker)))
        await trial.owned(worker)
        await trial.time.advance(59.999999)
        assert await self._found(trial, Overdue.UNHOSTED) == []
        await trial.time.advance(0.000001)
        assert await self._found(trial, Overdue.UNHOSTED) == [early.id]
        await trial.time.advance(1)
        assert await self._found(trial, Overdue.UNHOSTED) == [early.id, late.id]
        assert await self._found(trial, Overdue.UNHOSTED, limit=1) == [early.id]

    async def test_the_longest_overdue_comes_first_however_many_there_are(self, trial: Trial) -> None:
        worker = await trial.worker()
        stuck = await trial.owned(worker)
        await trial.time.advance(1)
        for _ in range(50):
            await trial.started(kind="late")
        taken = (await trial.claim(worker, limit=50, hosted=(("late", "1"),))).claimed
        await trial.time.advance(3600)
        assert len(taken) == 50
        assert await self._found(trial, Overdue.LAPSED, limit=1) == [stuck.id]

    async def test_inboxes_with_letters_that_were_left_are_told_of_those_at_rest(self, trial: Trial) -> None:
        worker = await trial.worker()
        now = await trial.time.now()

        async def left(seen: int = 1, **fields: Any) -> Process:
            row = await trial.owned(worker, **fields)
            await trial.send(row.id, "approval")
            consumed = ((1, 0),) if seen else ()
            return await trial.done(going_on(row, seen=seen, consumed=consumed))

        rest = await trial.done(resting(await left(), now + SECOND, events=()))
        await trial.done(resting(await left(), now + SECOND, Status.HELD, events=()))
        await trial.done(finished(await left()))
        await trial.done(resting(await left(seen=0), now + SECOND, events=()))  # it came only now: the row is due
        await left()  # owned
        timer = await trial.done(resting(await left(), now + SECOND, events=(), reminder=False))
        assert await self._found(trial, Overdue.INBOX) == [rest.id, timer.id]
        assert await self._found(trial, Overdue.INBOX, limit=1) == [rest.id]
        await trial.time.advance(1)
        assert await self._found(trial, Overdue.INBOX) == []  # due: a claim takes them, or the look at their reminder

    async def _made(self, trial: Trial, what: Overdue, *inputs: bytes) -> bytes:
        """Processes with these inputs, which are overdue in one way after a while; the answer is a worker."""
        worker = await trial.worker()
        now = await trial.time.now()
        for seconds, input in zip((5, 5, 5, 5, 7, 7, 6), inputs, strict=False):
            row = await trial.owned(worker, deadline=now + seconds * SECOND, input=input)
            if what is Overdue.INBOX:
                await trial.send(row.id)
                row = await trial.done(going_on(row, seen=1, consumed=((1, 0),)))
                await trial.done(resting(row, now + 3600 * SECOND, events=()))
            if what is Overdue.IDLE:
                await trial.done(resting(row, now + seconds * SECOND, Status.HELD))
        if what is Overdue.ORPHANED:
            await trial.store.retire(worker, None, True)
        await trial.time.advance(16)
        return worker

    @pytest.mark.parametrize("what", [what for what in Overdue if what is not Overdue.UNHOSTED])
    async def test_a_page_of_overdue_rows_holds_no_more_than_8_mib_and_one_row_at_least(
        self, trial: Trial, what: Overdue
    ) -> None:
        inside(trial)
        worker = await self._made(trial, what, *[bulk(1_900_000)] * 6, bulk(2_000_000))
        counts: list[tuple[int, int]] = []
        shown: set[bytes] = set()
        after = None
        while page := await trial.store.search(Search(overdue=what, owner=worker, limit=6, after=after)):
            counts.append((len(page), page.left))
            shown |= {row.id for row in page}
            at = page[-1].deadline if what is Overdue.EXPIRED else page[-1].due_at
            after = (at or 0, page[-1].id)
        assert (counts, len(shown)) == ([(4, 2), (3, 0)], 7)

    async def test_a_page_of_what_nobody_hosts_holds_first_one_of_each_kind_and_code(self, trial: Trial) -> None:
        inside(trial)
        for kind in "aabbbccddee":
            await trial.started(kind=kind, input=bulk(1_900_000))
        await trial.time.advance(61)
        search = Search(overdue=Overdue.UNHOSTED)
        page = await trial.store.search(search)
        assert ([row.kind for row in page], page.left) == (["a", "b", "c", "d"], 7)
        page = await trial.store.search(replace(search, after_pair=("d", "1")))
        assert ([row.kind for row in page], page.left) == (["e", "e"], 0)
        page = await trial.store.search(replace(search, after_pair=("b", "1"), limit=4))
        assert ([row.kind for row in page], page.left) == (["c", "d", "e"], 0)

    @pytest.mark.parametrize("what", [what for what in Overdue if what is not Overdue.UNHOSTED])
    async def test_pages_by_time_and_id_show_each_overdue_row_once(self, trial: Trial, what: Overdue) -> None:
        worker = await self._made(trial, what, *[b"[]"] * 7)
        whole = await trial.store.search(Search(overdue=what, owner=worker))
        paged: list[Process] = []
        after = None
        while page := await trial.store.search(Search(overdue=what, owner=worker, limit=2, after=after)):
            paged += page
            at = page[-1].deadline if what is Overdue.EXPIRED else page[-1].due_at
            after = (at or 0, page[-1].id)
        assert paged == whole and len({row.id for row in whole}) == 7

    async def test_what_nobody_hosts_is_shown_in_equal_parts_of_each_kind_and_code(self, trial: Trial) -> None:
        for kind, number in (("a", 5), ("b", 1), ("c", 5)):
            for _ in range(number):
                await trial.started(kind=kind)
        suspect = await trial.owned(await trial.worker(), kind="d")
        await trial.done(forced(suspect, deaths=2))
        await trial.time.advance(61)

        async def shown(limit: int, after: tuple[str, str] | None = None) -> list[str]:
            found = await trial.store.search(Search(overdue=Overdue.UNHOSTED, limit=limit, after_pair=after))
            assert [row.id for row in found] == [row.id for row in sorted(found, key=lambda row: (row.due_at, row.id))]
            return sorted(row.kind for row in found)

        assert await shown(8) == ["a", "a", "b", "c", "c", "d"]
        assert await shown(2) == ["a", "b"]
        assert await shown(2, ("b", "1")) == ["c", "d"]
        assert await shown(2, ("d", "1")) == []

    @pytest.mark.parametrize("what", list(Overdue))
    async def test_nothing_is_overdue_in_an_empty_store(self, trial: Trial, what: Overdue) -> None:
        assert await self._found(trial, what, owner=trial.ids.new_id()) == []

    async def test_law_unfinished_is_due_every_unfinished_row_has_a_next_look(self, trial: Trial) -> None:
        worker = await trial.worker()
        now = await trial.time.now()
        await trial.started()
        await trial.done(going_on(await trial.owned(worker)))
        await trial.done(released(await trial.owned(worker), now + SECOND))
        await trial.done(resting(await trial.owned(worker), now + SECOND, Status.BROKEN))
        await trial.done(finished(await trial.owned(worker)))
        await trial.done(forced(await trial.owned(worker)))
        rows = await trial.stored()
        assert [row for row in rows if (row.due_at is None) != row.final] == []
        assert rows == [replace(row, owner=row.owner if row.due_at else None) for row in rows]
