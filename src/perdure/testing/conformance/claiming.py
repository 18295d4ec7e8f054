"""Who gets what from a claim: only what is due, hosted and free, each row by one worker (rules 9 and 10)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.kernel.kind import KIND_MARK
from perdure.kernel.process import Status
from perdure.kernel.queue import Queue
from perdure.limits import BATCH_BYTES, SUSPECT_DEATHS
from perdure.testing.conformance.lettering import bulk, inside
from perdure.testing.conformance.trial import LEASE, Trial, finished, forced, going_on, only, released, resting


class Claiming:
    """Claims: tokens, leases, hosted kinds, order, suspects, takeovers."""

    async def test_rule_10_a_claim_gives_a_new_token_an_owner_and_a_lease(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.started()
        await trial.time.advance(1)
        answer = await trial.claim(worker)
        now = await trial.time.now()
        taken = only(answer.claimed)
        assert taken.process == replace(
            row, token=row.token + 1, owner=worker, due_at=now + LEASE, opened_at=now, changed_at=now
        )
        assert taken.process == await trial.row(row.id)
        assert (taken.was_owned_by, answer.now, answer.alive, answer.suspects) == (None, now, True, False)

    async def test_opened_at_is_the_time_of_the_first_claim(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.done(released(row, await trial.time.now()))
        await trial.time.advance(7)
        again = only((await trial.claim(worker)).claimed).process
        assert again.opened_at == row.opened_at
        assert again.token == row.token + 1

    async def test_rule_10_every_claim_raises_the_token_and_a_release_keeps_it(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.started()
        tokens = []
        for _ in range(5):
            taken = only((await trial.claim(worker)).claimed).process
            free = await trial.done(released(taken, await trial.time.now()))
            tokens.append((taken.token, free.token))
        assert tokens == [(row.token + turn, row.token + turn) for turn in range(1, 6)]

    async def test_rule_9_a_claim_takes_only_running_rows(self, trial: Trial) -> None:
        worker = await trial.worker()
        now = await trial.time.now()
        for status in (Status.HELD, Status.BROKEN):
            await trial.done(resting(await trial.owned(worker), now, status))
        for status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED):
            await trial.done(finished(await trial.owned(worker), status))
        await trial.time.advance(100)
        answer = await trial.claim(worker)
        assert (answer.claimed, answer.next_due_at) == ((), None)

    async def test_rule_9_a_claim_takes_only_hosted_kinds_and_code_versions(self, trial: Trial) -> None:
        worker = await trial.worker()
        pairs = [(kind, code) for kind in ("order", "refund", "Order") for code in ("1", "2", "")]
        started = [await trial.started(kind=kind, code=code) for kind, code in pairs]
        wanted = (("order", "2"), ("refund", "1"), ("refund", ""), ("unknown", "1"))
        taken = (await trial.claim(worker, hosted=wanted)).claimed
        assert sorted((one.process.kind, one.process.code) for one in taken) == sorted(wanted[:3])
        assert (await trial.claim(worker, hosted=())).claimed == ()
        rest = (await trial.claim(worker, hosted=tuple((row.kind, row.code) for row in started))).claimed
        assert len(rest) == len(started) - 3

    async def test_law_no_early_timer_a_row_is_taken_when_due_and_not_before(self, trial: Trial) -> None:
        worker = await trial.worker()
        now = await trial.time.now()
        row = await trial.done(released(await trial.owned(worker), now + 10 * SECOND))
        early = await trial.claim(worker)
        assert (early.claimed, early.next_due_at) == ((), row.due_at)
        await trial.time.advance(9.999999)
        assert (await trial.claim(worker)).claimed == ()
        await trial.time.advance(0.000001)
        assert only((await trial.claim(worker)).claimed).process.id == row.id

    async def test_rule_9_a_reminder_is_not_claimed(self, trial: Trial) -> None:
        worker = await trial.worker()
        await trial.done(resting(await trial.owned(worker), await trial.time.now()))
        await trial.time.advance(1)
        answer = await trial.claim(worker)
        assert (answer.claimed, answer.next_due_at) == ((), None)

    async def test_priority_first_then_due_time_then_id(self, trial: Trial) -> None:
        worker = await trial.worker()
        now = await trial.time.now()
        shape = [(4, 2), (0, 5), (9, 1), (4, 1), (0, 6), (4, 1), (2, 9)]
        rows = [await trial.started(priority=priority, due_at=now + due) for priority, due in shape]
        await trial.time.advance(1)
        expected = [row.id for row in sorted(rows, key=lambda row: (row.priority, row.due_at, row.id))]
        order = [only((await trial.claim(worker, limit=1)).claimed).process.id for _ in rows]
        assert order == expected

    async def test_a_claim_is_bounded_by_its_limit_over_all_kinds_and_priorities(self, trial: Trial) -> None:
        worker = await trial.worker()
        now = await trial.time.now()
        for kind in ("order", "refund"):
            for priority in (0, 4, 9):
                for _ in range(3):
                    await trial.started(kind=kind, priority=priority)
        hosted = (("order", "1"), ("refund", "1"))
        answer = await trial.claim(worker, limit=7, hosted=hosted)
        assert sorted(one.process.priority for one in answer.claimed) == [0] * 6 + [4]
        assert answer.next_due_at == now
        assert len((await trial.claim(worker, limit=100, hosted=hosted)).claimed) == 11
        assert (await trial.claim(worker, limit=0, hosted=hosted)).claimed == ()

    async def test_next_due_at_is_that_of_the_next_sleeper(self, trial: Trial) -> None:
        worker = await trial.worker()
        now = await trial.time.now()
        assert (await trial.claim(worker)).next_due_at is None
        for seconds in (9, 3, 5):
            await trial.started(due_at=now + seconds * SECOND)
        await trial.started(due_at=now + 1 * SECOND, kind="elsewhere")
        assert (await trial.claim(worker)).next_due_at == now + 3 * SECOND

    async def test_rule_13_suspects_are_left_out_and_told_of(self, trial: Trial) -> None:
        worker = await trial.worker()
        suspect = await trial.started(deaths=SUSPECT_DEATHS)
        plain = await trial.started(deaths=SUSPECT_DEATHS - 1)
        answer = await trial.claim(worker)
        assert [one.process.id for one in answer.claimed] == [plain.id]
        assert answer.suspects
        alone = await trial.claim(worker, alone=True)
        assert [one.process.id for one in alone.claimed] == [suspect.id]
        assert not (await trial.claim(worker)).suspects

    async def test_rule_13_a_claim_alone_takes_nothing_but_suspects(self, trial: Trial) -> None:
        worker = await trial.worker()
        await trial.started()
        suspects = [await trial.started(deaths=SUSPECT_DEATHS + more) for more in range(2)]
        first = only((await trial.claim(worker, alone=True, limit=1)).claimed).process.id
        second = only((await trial.claim(worker, alone=True)).claimed).process.id
        assert {first, second} == {row.id for row in suspects}
        assert (await trial.claim(worker, alone=True)).claimed == ()

    async def test_rule_13_suspects_of_one_company_are_claimed_together_as_many_as_may_run(self, trial: Trial) -> None:
        """The one due first says of which company, and how many; nobody else joins them."""
        worker, now = await trial.worker(), await trial.time.now()
        a, b, c, d = [
            await trial.started(due_at=now - n, priority=n % 2, deaths=SUSPECT_DEATHS, alone_deaths=-3)
            for n in range(4, 8)
        ]
        lonely = await trial.started(due_at=now - 3, deaths=SUSPECT_DEATHS)
        pair = await trial.started(due_at=now - 2, deaths=SUSPECT_DEATHS + 1, alone_deaths=-2)
        answers = [(await trial.claim(worker, 9, alone=True)).claimed for _ in range(5)]
        found = [{one.process.id for one in claimed} for claimed in answers]
        assert found == [{c.id, a.id, d.id}, {b.id}, {lonely.id}, {pair.id}, set()]

    async def test_rule_13_suspects_whose_leases_lapsed_are_claimed_by_company_too(self, trial: Trial) -> None:
        worker = await trial.worker()
        pairs = {(await trial.started(deaths=SUSPECT_DEATHS, alone_deaths=-2)).id for _ in range(3)}
        for _ in range(2):
            await trial.claim(worker, 9, alone=True, lease=SECOND)
        await trial.time.advance(2)
        await trial.started(deaths=SUSPECT_DEATHS, alone_deaths=-2)
        first = (await trial.claim(worker, 9, alone=True)).claimed
        second = (await trial.claim(worker, 9, alone=True)).claimed
        assert (len(first), len(second)) == (2, 1)
        assert {one.process.id for one in first + second} == pairs

    async def test_a_suspect_that_sleeps_is_not_told_of(self, trial: Trial) -> None:
        worker = await trial.worker()
        later = await trial.time.now() + SECOND
        await trial.started(deaths=SUSPECT_DEATHS, due_at=later)
        assert not (await trial.claim(worker)).suspects
        await trial.time.advance(1)
        assert (await trial.claim(worker)).suspects

    async def test_a_lapsed_lease_is_taken_over_with_a_new_token_and_says_whose_it_was(self, trial: Trial) -> None:
        first, second = await trial.worker(), await trial.worker("there")
        row = await trial.done(going_on(await trial.owned(first)))
        await trial.time.advance(LEASE / SECOND - 0.000001)
        assert (await trial.claim(second)).claimed == ()
        await trial.time.advance(0.000001)
        taken = only((await trial.claim(second)).claimed)
        now = await trial.time.now()
        assert taken.process == replace(row, token=row.token + 1, owner=second, due_at=now + LEASE, changed_at=now)
        assert taken.was_owned_by == first
        assert len(taken.events) == 1
        assert (await trial.claim(first)).claimed == ()

    async def test_a_worker_may_take_over_its_own_lapsed_row(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.time.advance(16)
        taken = only((await trial.claim(worker)).claimed)
        assert (taken.process.token, taken.was_owned_by) == (row.token + 1, worker)

    async def test_rule_11_a_claim_by_an_ended_incarnation_is_refused(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.started()
        await trial.store.retire(worker, None, True)
        answer = await trial.claim(worker)
        assert (answer.alive, answer.claimed) == (False, ())
        assert await trial.row(row.id) == row

    async def test_rule_5_a_claim_sent_again_takes_nothing_twice(self, trial: Trial) -> None:
        worker = await trial.worker()
        rows = [await trial.started() for _ in range(3)]
        first = await trial.claim(worker)
        again = await trial.claim(worker)
        assert len(first.claimed) == 3
        assert again.claimed == ()
        assert [await trial.row(row.id) for row in rows] == sorted(
            (one.process for one in first.claimed), key=lambda process: process.id
        )

    async def test_a_claim_of_one_process_takes_it_due_or_not(self, trial: Trial) -> None:
        worker = await trial.worker()
        now = await trial.time.now()
        row, other = await trial.started(due_at=now + 60 * SECOND), await trial.started()
        assert (await trial.claim(worker, only=row.id, limit=0)).claimed == ()
        taken = only((await trial.claim(worker, only=row.id)).claimed)
        assert (taken.process.id, taken.process.due_at) == (row.id, now + LEASE)
        assert await trial.row(other.id) == other

    async def test_a_claim_of_one_process_takes_it_from_its_rest(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.done(resting(await trial.owned(worker), await trial.time.now() + 60 * SECOND))
        taken = only((await trial.claim(worker, only=row.id)).claimed)
        assert (taken.process.reminder, taken.process.token) == (False, row.token + 1)

    async def test_law_one_owner_a_claim_of_one_process_leaves_a_live_lease_alone(self, trial: Trial) -> None:
        worker, other = await trial.worker(), await trial.worker("there")
        row = await trial.owned(worker)
        assert (await trial.claim(other, only=row.id)).claimed == ()
        assert await trial.row(row.id) == row
        await trial.time.advance(15)
        assert only((await trial.claim(other, only=row.id)).claimed).was_owned_by == worker

    async def test_a_claim_of_one_process_still_asks_what_it_is(self, trial: Trial) -> None:
        worker = await trial.worker()
        now = await trial.time.now()
        foreign = await trial.started(kind="refund")
        suspect = await trial.started(deaths=SUSPECT_DEATHS)
        held = await trial.done(resting(await trial.owned(worker), now, Status.HELD))
        ended = await trial.done(finished(await trial.owned(worker)))
        for row in (foreign, suspect, held, ended):
            assert (await trial.claim(worker, only=row.id)).claimed == ()
            assert await trial.row(row.id) == row
        assert (await trial.claim(worker, only=trial.ids.new_id())).claimed == ()
        assert len((await trial.claim(worker, only=suspect.id, alone=True)).claimed) == 1

    async def test_a_forced_row_is_due_again_with_the_token_of_the_command(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.done(forced(await trial.owned(worker)))
        taken = only((await trial.claim(worker)).claimed)
        assert (row.owner, taken.process.token, taken.was_owned_by) == (None, row.token + 1, None)

    async def test_rule_6_a_claim_passes_by_rows_that_somebody_else_has_locked(self, trial: Trial) -> None:
        if not trial.ground.locks_rows:
            pytest.skip("this database locks no single rows")
        worker = await trial.worker()
        rows = [await trial.started() for _ in range(4)]
        async with trial.ground.locked(rows[0].id, rows[2].id):
            taken = (await trial.claim(worker)).claimed
        assert {one.process.id for one in taken} == {rows[1].id, rows[3].id}
        assert len((await trial.claim(worker)).claimed) == 2
        await trial.time.advance(16)
        async with trial.ground.locked(rows[1].id):
            assert len((await trial.claim(worker)).claimed) == 3

    async def test_a_claim_takes_no_more_than_8_mib_of_rows_and_one_at_least(self, trial: Trial) -> None:
        worker, other = await trial.worker(), await trial.worker()
        small, large = bulk(1_000_000), bulk(2_000_000)
        rows = [await trial.started(input=large if n == 3 else small) for n in range(10)]
        sizes = {row.id: len(row.input) for row in rows}

        async def claimed(worker: bytes) -> list[int]:
            counts: list[int] = []
            taken: set[bytes] = set()
            while answer := (await trial.claim(worker)).claimed:
                ids = {one.process.id for one in answer}
                assert len(ids) == 1 or sum(map(sizes.__getitem__, ids)) <= BATCH_BYTES
                assert not ids & taken
                taken |= ids
                counts.append(len(ids))
            assert taken == sizes.keys()
            return counts

        assert await claimed(worker) == [7, 3]
        await trial.time.advance(LEASE // SECOND + 1)
        assert sum(await claimed(other)) == 10, "those whose lease has lapsed too"

    async def test_of_processes_that_are_named_a_claim_takes_no_more_than_8_mib(self, trial: Trial) -> None:
        inside(trial)
        worker = await trial.worker()
        theirs = [(await trial.owned(await trial.worker(), input=bulk(1_000_000))).id for _ in range(8)]
        left = [(await trial.started(input=bulk(1_000_000))).id for _ in range(10)]
        for count, next_due_at in ((8, await trial.time.now()), (2, None), (0, None)):
            answer = await trial.claim(worker, among=(*theirs, *left))
            assert ([one.process.id for one in answer.claimed], answer.next_due_at) == (left[:count], next_due_at)
            left = left[count:]

    async def test_of_kinds_with_limits_a_claim_takes_no_more_than_8_mib(self, trial: Trial) -> None:
        inside(trial)
        worker, kinds = await trial.worker(), ("invoice", "mail")
        await trial.store.records(Queue, [Queue(KIND_MARK + kind, 1, concurrency=100) for kind in kinds])
        for kind in kinds * 6:
            await trial.started(kind=kind, code="", input=bulk(1_900_000))
        for left in (8, 4, 0):
            answer = await trial.claim(worker, hosted=tuple((kind, "") for kind in kinds))
            assert (len(answer.claimed), answer.next_due_at) == (4, answer.now if left else None)
