"""Many at the same time: no row has two owners, no fence lets two through, nothing is read half."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
from msgspec.structs import replace

from perdure.kernel.claim import Claimed
from perdure.kernel.commit import Commit, Start, StartVerdict, Verdict
from perdure.kernel.message import SendVerdict
from perdure.testing.conformance.trial import Trial, finished, going_on, only, released

PATIENCE = 20.0
"""Seconds for which a busy row is tried again; the session that has it locked may have to wait for a processor."""


class Crowded:
    """Several stores on one database, or one where the ground has room for no other."""

    @pytest_asyncio.fixture
    async def crowd(self, trial: Trial) -> AsyncIterator[list[Trial]]:
        """Four ways to the same database, each with connections of its own if that can be."""
        others = [trial.ground.store() for _ in range(3)] if trial.ground.shared else []
        for store in others:
            await store.open()
        trials = [Trial(trial.ground, store, trial.ids) for store in others]
        yield [trial, *trials] if trials else [trial] * 4
        for store in others:
            await store.close()


class Racing(Crowded):
    """Races between stores on one database."""

    async def test_fifty_workers_and_1000_rows_each_row_is_claimed_once(self, crowd: list[Trial]) -> None:
        trial = crowd[0]
        workers = [await trial.worker(str(number)) for number in range(50)]
        await trial.store.start([Start(trial.process(priority=number % 10)) for number in range(1000)])

        async def work(number: int) -> list[Claimed]:
            taken: list[Claimed] = []
            while answer := (await crowd[number % 4].claim(workers[number], limit=20)).claimed:
                taken += answer
            return taken

        hands = await asyncio.gather(*(work(number) for number in range(50)))
        taken = [one for hand in hands for one in hand] + await work(0)
        assert len(taken) == len({one.process.id for one in taken}) == 1000
        assert {one.process.token for one in taken} == {1}
        owners = {row.id: row.owner for row in await trial.stored()}
        assert owners == {one.process.id: one.process.owner for one in taken}

    async def test_eight_claimers_never_share_a_row_nor_leave_one(self, crowd: list[Trial]) -> None:
        trial = crowd[0]
        workers = [await trial.worker(str(number)) for number in range(8)]
        for _ in range(3):
            await trial.store.start([Start(trial.process()) for _ in range(100)])
            answers = await asyncio.gather(
                *(crowd[number % 4].claim(worker, limit=30) for number, worker in enumerate(workers))
            )
            rest = await trial.claim(workers[0], limit=100)
            taken = [one.process.id for answer in (*answers, rest) for one in answer.claimed]
            assert len(taken) == len(set(taken)) == 100

    async def test_of_rival_commits_under_one_fence_one_is_applied(self, crowd: list[Trial]) -> None:
        trial = crowd[0]
        worker = await trial.worker()
        rows = [await trial.owned(worker) for _ in range(20)]
        rivals = [[going_on(row, state=str(number).encode()) for row in rows] for number in range(4)]
        rivals = [[_signed(commit, number) for commit in batch] for number, batch in enumerate(rivals)]

        async def send(number: int) -> list[Verdict]:
            return [await _committed(crowd[number], commit) for commit in rivals[number]]

        columns = zip(*await asyncio.gather(*(send(number) for number in range(4))), strict=True)
        for row, verdicts in zip(rows, columns, strict=True):
            assert sorted(verdicts) == [Verdict.APPLIED] + [Verdict.REFUSED] * 3
            winner = verdicts.index(Verdict.APPLIED)
            whole = await trial.whole(row.id)
            assert whole.process.state == str(winner).encode()
            assert [event.payload for event in whole.events] == [str(winner).encode()]

    async def test_rule_1_a_zombie_leaves_no_event_beside_a_takeover(self, crowd: list[Trial]) -> None:
        trial = crowd[0]
        first, second = await trial.worker(), await trial.worker("there")
        rows = [await trial.owned(first) for _ in range(30)]
        await trial.time.advance(16)
        late = [going_on(row, steps=3) for row in rows]

        async def zombie() -> list[Verdict]:
            return [answer.verdict for commit in late for answer in await crowd[1].store.commit([commit])]

        async def heir() -> dict[bytes, Claimed]:
            taken: dict[bytes, Claimed] = {}
            while len(taken) < len(rows) and (answer := (await trial.claim(second, limit=2)).claimed):
                taken |= {one.process.id: one for one in answer}
            return taken

        verdicts, taken = await asyncio.gather(zombie(), heir())
        for row, verdict in zip(rows, verdicts, strict=True):
            whole = await trial.whole(row.id)
            applied = verdict is Verdict.APPLIED
            assert len(whole.events) == whole.process.events == (3 if applied else 0)
            assert (row.id in taken) == (whole.process.owner == second)
            if row.id in taken:
                assert taken[row.id].events == whole.events
                assert taken[row.id].process.token == row.token + 1

    async def test_rule_3_what_a_claim_reads_is_never_older_than_its_row(self, crowd: list[Trial]) -> None:
        trial = crowd[0]
        worker = await trial.worker()
        rows = [await trial.started() for _ in range(4)]
        stop = False

        async def senders(number: int) -> int:
            sent = 0
            while not stop:
                answers = await crowd[number].store.send([trial.signal(row.id) for row in rows])
                sent += sum(answer.verdict is SendVerdict.DELIVERED for answer in answers)
            return sent

        async def turns() -> None:
            for _ in range(40):
                for taken in (await trial.claim(worker, limit=3)).claimed:
                    row = taken.process
                    assert [event.number for event in taken.events] == list(range(1, row.events + 1))
                    assert [message.number for message in taken.messages] == list(range(row.seen + 1, row.inbox + 1))
                    consumed = tuple((number, row.events + 1) for number in range(row.seen + 1, row.inbox + 1))
                    commit = released(row, await trial.time.now(), seen=row.inbox, consumed=consumed)
                    assert await _committed(trial, commit) is Verdict.APPLIED

        sending = [asyncio.create_task(senders(number)) for number in (1, 2)]
        await turns()
        stop = True
        assert sum(await asyncio.gather(*sending)) == sum(row.inbox for row in await trial.stored())

    async def test_law_nothing_unheard_a_release_and_a_send_at_once_lose_no_wake_up(self, crowd: list[Trial]) -> None:
        trial = crowd[0]
        worker = await trial.worker()
        rows = [await trial.owned(worker) for _ in range(20)]
        never = await trial.time.now() + (1 << 40)

        async def release() -> None:
            for row in rows:
                await _committed(trial, released(row, never))

        async def send() -> None:
            for row in rows:
                await _delivered(crowd[1], row.id)

        await asyncio.gather(release(), send())
        assert {(row.inbox, row.owner, row.due_at) for row in await trial.stored()} == {
            (1, None, await trial.time.now())
        }

    async def test_rule_4_an_end_and_a_send_at_the_same_time_leave_no_message_unanswered(
        self, crowd: list[Trial]
    ) -> None:
        trial = crowd[0]
        worker = await trial.worker()
        rows = [await trial.owned(worker) for _ in range(20)]

        async def end() -> list[Verdict]:
            return [await _committed(trial, finished(row)) for row in rows]

        async def send() -> list[SendVerdict]:
            return [await _delivered(crowd[1], row.id) for row in rows]

        pairs = zip(*await asyncio.gather(end(), send()), strict=True)
        assert set(pairs) <= {
            (Verdict.APPLIED, SendVerdict.FINISHED),
            (Verdict.READ_FIRST, SendVerdict.DELIVERED),
        }

    async def test_the_same_batch_of_commits_twice_at_the_same_time_is_applied_once(self, crowd: list[Trial]) -> None:
        trial = crowd[0]
        worker = await trial.worker()
        rows = [await trial.owned(worker) for _ in range(50)]
        batch = [going_on(row, steps=2) for row in rows]
        one, two = await asyncio.gather(trial.store.commit(batch), crowd[1].store.commit(batch))
        assert {answer.verdict for answer in one + two} <= {Verdict.APPLIED, Verdict.BUSY}
        assert {answer.verdict for answer in await trial.store.commit(batch)} == {Verdict.APPLIED}
        assert {(row.version, row.events) for row in await trial.stored()} == {(1, 2)}

    async def test_rule_6_crossed_batches_of_commits_do_not_stop_each_other(self, crowd: list[Trial]) -> None:
        trial = crowd[0]
        worker = await trial.worker()
        rows = [await trial.owned(worker) for _ in range(60)]
        batch = [going_on(row) for row in rows]
        signals = [trial.signal(row.id) for row in rows]
        one, two, _ = await asyncio.gather(
            trial.store.commit(batch), crowd[1].store.commit(batch[::-1]), crowd[2].store.send(signals)
        )
        assert {answer.verdict for answer in one + two} <= {Verdict.APPLIED, Verdict.BUSY}
        assert {answer.verdict for answer in await trial.store.commit(batch)} == {Verdict.APPLIED}

    async def test_a_takeover_by_many_has_one_heir(self, crowd: list[Trial]) -> None:
        trial = crowd[0]
        first = await trial.worker()
        heirs = [await trial.worker(str(number)) for number in range(8)]
        row = await trial.owned(first)
        await trial.time.advance(16)
        answers = await asyncio.gather(*(crowd[number % 4].claim(worker) for number, worker in enumerate(heirs)))
        taken = only([one for answer in answers for one in answer.claimed])
        assert (taken.process.token, taken.was_owned_by) == (row.token + 1, first)
        assert await trial.row(row.id) == taken.process

    async def test_one_batch_of_starts_twice_at_the_same_time_is_stored_once(self, crowd: list[Trial]) -> None:
        trial = crowd[0]
        starts = [Start(trial.process(key=f"order/{number}" if number % 2 else None)) for number in range(200)]
        one, two = await asyncio.gather(*(crowd[number].store.start(starts) for number in range(2)))
        assert {answer.verdict for answer in one + two} == {StartVerdict.CREATED}
        assert len(await trial.stored()) == 200

    async def test_eight_starters_of_the_same_keys_create_each_process_once(self, crowd: list[Trial]) -> None:
        trial = crowd[0]
        batches = [[Start(trial.process(key=f"order/{number}")) for number in range(20)] for _ in range(8)]
        batches = [batch[::-1] if number % 2 else batch for number, batch in enumerate(batches)]
        answers = await asyncio.gather(*(crowd[number % 4].store.start(batch) for number, batch in enumerate(batches)))
        columns = zip(*(answer[::-1] if number % 2 else answer for number, answer in enumerate(answers)), strict=True)
        for column in columns:
            assert sorted(answer.verdict for answer in column) == [StartVerdict.EXISTS] * 7 + [StartVerdict.CREATED]
            assert len({answer.id for answer in column}) == 1
        assert len(await trial.stored()) == 20

    async def test_rule_4_senders_at_the_same_time_leave_no_gap_and_no_double(self, crowd: list[Trial]) -> None:
        rows = [await crowd[0].started() for _ in range(3)]

        async def sender(number: int) -> list[tuple[bytes, int]]:
            numbers = []
            for _ in range(5):
                todo = [crowd[0].signal(row.id) for row in rows for _ in range(2)]
                while todo:
                    answers = await crowd[number].store.send(todo)
                    numbers += [(answer.process, answer.number) for answer in answers if answer.number]
                    busy = [answer.verdict is SendVerdict.BUSY for answer in answers]
                    todo = [message for message, again in zip(todo, busy, strict=True) if again]
            return numbers

        numbers = [number for one in await asyncio.gather(*(sender(number) for number in range(4))) for number in one]
        assert sorted(numbers) == sorted((row.id, number) for row in rows for number in range(1, 41))
        assert {row.inbox for row in await crowd[0].stored()} == {40}

    async def test_one_batch_of_messages_twice_at_the_same_time_is_delivered_once(self, crowd: list[Trial]) -> None:
        trial = crowd[0]
        row = await trial.started()
        batch = [trial.signal(row.id, key=str(number) if number % 2 else None) for number in range(50)]
        await asyncio.gather(*(crowd[number].store.send(batch) for number in range(2)))
        answers = await trial.store.send(batch)
        assert sorted(answer.number for answer in answers) == list(range(1, 51))
        assert (await trial.row(row.id)).inbox == 50


async def _committed(trial: Trial, commit: Commit) -> Verdict:
    """The verdict on a commit that is tried again as long as its row is busy."""
    async with asyncio.timeout(PATIENCE):
        while True:
            verdict = (await trial.commit(commit)).verdict
            if verdict is not Verdict.BUSY:
                return verdict


async def _delivered(trial: Trial, process: bytes) -> SendVerdict:
    """The verdict on a signal that is tried again as long as its target is busy."""
    message = trial.signal(process)
    async with asyncio.timeout(PATIENCE):
        while True:
            [answer] = await trial.store.send([message])
            if answer.verdict is not SendVerdict.BUSY:
                return answer.verdict


def _signed(commit: Commit, number: int) -> Commit:
    payload = str(number).encode()
    return replace(commit, events=tuple(replace(event, payload=payload) for event in commit.events))
