"""What every store answers to a start, and what it stores."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.errors import BadRecord
from perdure.kernel.commit import Start, StartVerdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process, Status
from perdure.testing.conformance.trial import LEASE, Trial, finished, only, plain

ONE_STEP = Event(1, 1, EventType.STEP_COMPLETED, 7, "1", "charge", b'"paid"', b"digest 8", token=1, version=1)


class Starting:
    """Starts: distinct answers, keys, resends, first turns."""

    async def test_created_existing_and_conflicting_starts_are_answered_differently(self, trial: Trial) -> None:
        created = trial.process(key="order/1")
        again = trial.process(key="order/1")
        other = trial.process(key="order/1", input=b"[2]")
        [first] = await trial.store.start([Start(created)])
        [second] = await trial.store.start([Start(again)])
        [third] = await trial.store.start([Start(other)])
        assert first.verdict is StartVerdict.CREATED
        assert second.verdict is StartVerdict.EXISTS
        assert third.verdict is StartVerdict.CONFLICT
        assert first.id == second.id == third.id == created.id
        assert first.now == second.now == third.now == await trial.time.now()

    async def test_a_second_start_with_the_same_key_changes_nothing(self, trial: Trial) -> None:
        row = await trial.started(key="order/1")
        await trial.send(row.id)
        before = await trial.whole(row.id)
        await trial.time.advance(5)
        for given in (b"[1]", b"[2]"):
            second = trial.process(key="order/1", input=given, priority=0, attributes=b'{"a":1}')
            await trial.store.start([Start(second)])
        assert await trial.whole(row.id) == before
        assert [process.id for process in await trial.stored()] == [row.id]

    async def test_a_start_sent_again_is_answered_as_the_first_time(self, trial: Trial) -> None:
        starts = [Start(trial.process(key=f"order/{number}")) for number in range(3)]
        starts += [Start(trial.process()) for _ in range(3)]
        first = await trial.store.start(starts)
        assert {(answer.verdict, answer.again) for answer in first} == {(StartVerdict.CREATED, False)}
        assert await trial.store.start(starts) == [replace(answer, again=True) for answer in first]
        assert len(await trial.stored()) == 6

    async def test_of_two_starts_of_one_id_in_a_batch_the_first_is_stored(self, trial: Trial) -> None:
        process = trial.process(key="order/1")
        opened, worker = await trial.time.now(), await trial.worker()
        owned = replace(
            process, owner=worker, token=1, version=1, events=1, created_at=opened, opened_at=opened, awaiting="ship"
        )
        answers = await trial.store.start([Start(process), Start(owned, (ONE_STEP,), LEASE)])
        assert [(answer.verdict, answer.again) for answer in answers] == [
            (StartVerdict.CREATED, False),
            (StartVerdict.CREATED, True),
        ]
        assert [(row.owner, row.token) for row in await trial.stored()] == [(None, 0)]
        assert (await trial.whole(process.id)).events == ()

    async def test_a_start_sent_again_after_the_process_moved_on_changes_nothing(self, trial: Trial) -> None:
        worker = await trial.worker()
        start = Start(trial.process(key="order/1"))
        await trial.store.start([start])
        await trial.done(finished(only((await trial.claim(worker)).claimed).process))
        before = await trial.whole(start.process.id)
        [answer] = await trial.store.start([start])
        assert (answer.verdict, answer.id) == (StartVerdict.CREATED, start.process.id)
        assert await trial.whole(start.process.id) == before

    async def test_the_key_of_a_finished_process_stays_taken(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker, key="order/1")
        await trial.done(finished(row))
        [same, other] = await trial.store.start(
            [Start(trial.process(key="order/1")), Start(trial.process(key="order/1", input=b"[2]"))]
        )
        assert (same.verdict, same.id) == (StartVerdict.EXISTS, row.id)
        assert (other.verdict, other.id) == (StartVerdict.CONFLICT, row.id)

    async def test_the_same_key_under_another_kind_is_another_process(self, trial: Trial) -> None:
        answers = await trial.store.start([Start(trial.process(kind=kind, key="1")) for kind in ("order", "refund")])
        assert [answer.verdict for answer in answers] == [StartVerdict.CREATED] * 2
        assert answers[0].id != answers[1].id

    async def test_processes_without_a_key_never_meet(self, trial: Trial) -> None:
        answers = await trial.store.start([Start(trial.process()) for _ in range(5)])
        assert len({answer.id for answer in answers}) == 5
        assert {answer.verdict for answer in answers} == {StartVerdict.CREATED}

    async def test_one_key_twice_in_one_batch_creates_one_process(self, trial: Trial) -> None:
        starts = [
            Start(trial.process(key="order/1")),
            Start(trial.process(key="order/1")),
            Start(trial.process(key="order/2")),
            Start(trial.process(key="order/1", input=b"[2]")),
        ]
        answers = await trial.store.start(starts)
        assert [answer.verdict for answer in answers] == [
            StartVerdict.CREATED,
            StartVerdict.EXISTS,
            StartVerdict.CREATED,
            StartVerdict.CONFLICT,
        ]
        assert [answer.id for answer in answers] == [starts[index].process.id for index in (0, 0, 2, 0)]

    async def test_a_started_process_is_due_now_and_kept_as_given(self, trial: Trial) -> None:
        now = await trial.time.now()
        given = trial.process(
            key="order/1",
            input=b'{"cents": 1299}',
            awaiting="worker",
            deadline=now + SECOND,
            priority=9,
            attributes=b'{"city":"Riga"}',
            state=b'"new"',
            progress=b'"0 of 3"',
            parent=trial.ids.new_id(),
            code="2026.1",
        )
        await trial.store.start([Start(given)])
        assert plain(await trial.row(given.id)) == replace(given, due_at=now, created_at=now, changed_at=now)

    async def test_a_delayed_start_is_due_at_its_own_time(self, trial: Trial) -> None:
        worker = await trial.worker()
        later = await trial.time.now() + 60 * SECOND
        row = await trial.started(due_at=later)
        assert row.due_at == later
        assert (await trial.claim(worker)).claimed == ()
        await trial.time.advance(60)
        assert only((await trial.claim(worker)).claimed).process.id == row.id

    async def test_a_start_as_owned_has_owner_and_lease_at_once(self, trial: Trial) -> None:
        worker, other = await trial.worker(), await trial.worker("there")
        given = trial.process(owner=worker, token=1)
        [answer] = await trial.store.start([Start(given, lease=LEASE)])
        now = await trial.time.now()
        row = await trial.row(given.id)
        assert answer.verdict is StartVerdict.CREATED
        assert row == replace(given, due_at=now + LEASE, created_at=now, opened_at=now, changed_at=now)
        assert (await trial.claim(other)).claimed == ()

    async def test_rule_16_a_first_turn_is_stored_with_the_insert(self, trial: Trial) -> None:
        worker = await trial.worker()
        opened = await trial.time.now() - 3
        given = trial.process(
            owner=worker, token=1, version=1, events=1, created_at=opened, opened_at=opened, awaiting="step ship"
        )
        await trial.store.start([Start(given, (ONE_STEP,), LEASE)])
        whole = await trial.whole(given.id)
        now = await trial.time.now()
        assert whole.process == replace(given, due_at=now + LEASE, changed_at=now)
        assert whole.events == (ONE_STEP,)

    async def test_rule_16_a_process_may_end_in_its_first_turn(self, trial: Trial) -> None:
        opened = await trial.time.now()
        last = replace(ONE_STEP, type=EventType.COMPLETED, place="", name="", payload=None, digest=None)
        given = trial.process(
            status=Status.COMPLETED, token=1, version=1, events=1, result=b"3", created_at=opened, opened_at=opened
        )
        [answer] = await trial.store.start([Start(given, (last,))])
        whole = await trial.whole(given.id)
        assert answer.verdict is StartVerdict.CREATED
        assert whole.process == replace(given, changed_at=opened)
        assert whole.events == (last,)

    async def test_rule_16_a_process_may_fall_asleep_in_its_first_turn(self, trial: Trial) -> None:
        worker = await trial.worker()
        opened = await trial.time.now()
        given = trial.process(
            token=1, version=1, events=1, created_at=opened, opened_at=opened, due_at=opened + SECOND, awaiting="timer"
        )
        await trial.store.start([Start(given, (ONE_STEP,))])
        assert await trial.row(given.id) == replace(given, changed_at=opened)
        assert (await trial.claim(worker)).claimed == ()
        await trial.time.advance(1)
        taken = only((await trial.claim(worker)).claimed)
        assert (taken.process.token, taken.process.opened_at, taken.events) == (2, opened, (ONE_STEP,))

    async def test_rule_11_a_start_as_owned_by_an_ended_incarnation_is_refused(self, trial: Trial) -> None:
        ended, alive = await trial.worker(), await trial.worker("there")
        await trial.store.retire(ended, None, False)
        starts = [
            Start(trial.process(owner=ended, token=1, key="order/1"), lease=LEASE),
            Start(trial.process(owner=alive, token=1, key="order/2"), lease=LEASE),
        ]
        answers = await trial.store.start(starts)
        assert [answer.verdict for answer in answers] == [StartVerdict.REFUSED, StartVerdict.CREATED]
        assert [process.key for process in await trial.stored()] == ["order/2"]
        [free] = await trial.store.start([Start(trial.process(key="order/1", input=b"[2]"))])
        assert free.verdict is StartVerdict.CREATED

    async def test_rule_5_a_start_as_owned_that_was_applied_stays_created_after_its_worker_ended(
        self, trial: Trial
    ) -> None:
        worker = await trial.worker()
        start = Start(trial.process(owner=worker, token=1), lease=LEASE)
        await trial.store.start([start])
        await trial.store.retire(worker, None, True)
        [answer] = await trial.store.start([start])
        assert answer.verdict is StartVerdict.CREATED

    async def test_a_batch_of_1000_starts_is_answered_in_its_order(self, trial: Trial) -> None:
        starts = [Start(trial.process(key=f"order/{number % 900}")) for number in range(1000)]
        answers = await trial.store.start(starts)
        assert [answer.verdict for answer in answers[:900]] == [StartVerdict.CREATED] * 900
        assert [answer.verdict for answer in answers[900:]] == [StartVerdict.EXISTS] * 100
        assert [answer.id for answer in answers] == [starts[number % 900].process.id for number in range(1000)]
        assert len(await trial.stored()) == 900

    @pytest.mark.parametrize(
        "fault",
        [
            {"id": b"short"},
            {"priority": 10},
            {"priority": -1},
            {"kind": "a\0b"},
            {"key": "a\0b"},
            {"code": "\ud800"},
            {"deadline": 1 << 70},
            {"token": 1 << 70},
            {"attributes": b"{"},
            {"attributes": b'{"a":"\\u0000"}'},
            {"parent": b"short"},
        ],
        ids=str,
    )
    async def test_a_bad_record_among_starts_raises_and_stores_nothing_of_the_batch(
        self, trial: Trial, fault: dict[str, object]
    ) -> None:
        good = [Start(trial.process(key="order/1")), Start(trial.process(key="order/2"))]
        with pytest.raises(BadRecord):
            await trial.store.start([good[0], Start(trial.process(**fault)), good[1]])
        assert await trial.stored() == []
        answers = await trial.store.start(good)
        assert [answer.verdict for answer in answers] == [StartVerdict.CREATED] * 2

    async def test_rule_6_a_start_is_answered_at_once_though_the_holder_of_its_key_is_locked(
        self, trial: Trial
    ) -> None:
        if not trial.ground.locks_rows:
            pytest.skip("this database locks no single rows")
        row = await trial.started(key="order/1")
        starts = [Start(trial.process(key="order/1")), Start(trial.process(key="order/2"))]
        async with trial.ground.locked(row.id), asyncio.timeout(5):
            answers = await trial.store.start(starts)
        assert [answer.verdict for answer in answers] == [StartVerdict.EXISTS, StartVerdict.CREATED]

    async def test_a_batch_of_no_starts_is_answered_with_nothing(self, trial: Trial) -> None:
        assert await trial.store.start([]) == []

    async def test_two_kinds_with_equal_keys_do_not_see_each_other(self, trial: Trial) -> None:
        rows: list[Process] = [await trial.started(kind=kind, key="1") for kind in ("order", "refund")]
        await trial.send(rows[0].id)
        assert (await trial.row(rows[0].id)).inbox == 1
        assert (await trial.row(rows[1].id)) == rows[1]
