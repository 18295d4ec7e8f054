"""What people set and name: rows of small tables, written whole, each version once."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.kernel.breaker import Circuit
from perdure.kernel.commit import Start
from perdure.kernel.leader import Leader
from perdure.kernel.note import Note
from perdure.kernel.process import Status
from perdure.kernel.queue import Load, Queue, QueueDepth
from perdure.kernel.worker import Backlog
from perdure.testing.conformance.trial import Trial, finished, resting

BANK = Queue("bank", 1, concurrency=5, rate=7, per=60 * SECOND, share_concurrency=2)


class Recording:
    """The method ``records``."""

    async def test_a_record_is_written_whole_and_read_again_by_name(self, trial: Trial) -> None:
        now = await trial.time.now()
        full = replace(
            BANK, blocked_at=now, blocked_by="ana", blocked_why="it is down", changed_at=now, who="bob", why="é",
            origin="cli",
        )  # fmt: skip
        other = Queue("airport", 1, changed_at=now)
        assert await trial.store.records(Queue) == []
        assert await trial.store.records(Queue, [full, other]) == [other, full]
        assert await trial.store.records(Queue) == [other, full]

    async def test_a_change_of_an_older_version_is_ignored_and_the_answer_tells(self, trial: Trial) -> None:
        await trial.store.records(Queue, [BANK])
        ours, theirs = replace(BANK, version=2, concurrency=6), replace(BANK, version=2, concurrency=9)
        assert await trial.store.records(Queue, [ours]) == [ours]
        assert await trial.store.records(Queue, [theirs]) == [ours]
        assert await trial.store.records(Queue, [replace(BANK, version=4)]) == [ours]
        assert await trial.store.records(Queue, [BANK]) == [ours]

    async def test_a_change_sent_again_is_answered_as_the_first_time(self, trial: Trial) -> None:
        assert await trial.store.records(Queue, [BANK]) == await trial.store.records(Queue, [BANK]) == [BANK]

    async def test_the_first_version_of_a_record_is_one(self, trial: Trial) -> None:
        assert await trial.store.records(Queue, [replace(BANK, version=2)]) == []

    async def test_what_the_store_keeps_in_a_record_is_not_for_others_to_write(self, trial: Trial) -> None:
        assert await trial.store.records(Queue, [replace(BANK, next_at=77, turn="acme")]) == [BANK]

    async def test_a_circuit_is_written_whole_each_version_once_and_read_again_by_name(self, trial: Trial) -> None:
        now = await trial.time.now()
        full = Circuit(
            "bank", 1, "open", now, now + 1, "é", True, 1, 2, now + 2, 3, 4, "worker", now + 3, "ana", "why", "cli"
        )
        bare = Circuit("airport", 1)
        assert await trial.store.records(Circuit) == []
        assert await trial.store.records(Circuit, [full, bare]) == [bare, full]
        assert await trial.store.records(Circuit, [full]) == await trial.store.records(Circuit) == [bare, full]
        [_, read] = await trial.store.records(Circuit)
        assert read.forced is True
        ours, theirs = replace(full, version=2, until=None), replace(full, version=2, failures=99)
        assert await trial.store.records(Circuit, [ours]) == [bare, ours]
        assert await trial.store.records(Circuit, [theirs]) == [bare, ours]
        assert await trial.store.records(Circuit, [replace(full, version=4)]) == [bare, ours]
        assert await trial.store.records(Circuit, [Circuit("station", 2)]) == [bare, ours], "the first version is one"

    async def test_of_two_who_decide_the_same_of_a_circuit_one_finds_it_written(self, trial: Trial) -> None:
        both = [Circuit("bank", 1, "half-open", probes=1, worker=name) for name in ("one", "two")]
        answers = await asyncio.gather(*(trial.store.records(Circuit, [one]) for one in both))
        assert [one in answer for one, answer in zip(both, answers, strict=True)].count(True) == 1

    async def test_a_leader_is_written_whole_each_version_once_and_read_again_by_name(self, trial: Trial) -> None:
        now = await trial.time.now()
        full = Leader("import", 1, 7, "one", "é:1", now, now + 1, True, now + 2, "ana", "why", "cli")
        bare = Leader("audit", 1, 1)
        assert await trial.store.records(Leader, [full, bare]) == [bare, full] == await trial.store.records(Leader)
        ours, theirs = replace(full, version=2, term=8), replace(full, version=2, candidate="two")
        assert await trial.store.records(Leader, [ours]) == [bare, ours]
        assert await trial.store.records(Leader, [theirs]) == [bare, ours]
        assert await trial.store.records(Leader, [replace(full, version=4)]) == [bare, ours]
        assert await trial.store.records(Leader, [Leader("report", 2, 1)]) == [bare, ours], "the first version is one"

    async def test_a_note_is_written_whole_each_version_once_and_read_again_by_name(self, trial: Trial) -> None:
        full, bare = Note("sweep idle", 1, await trial.time.now(), '{"é": 1}'), Note("alert", 1)
        assert await trial.store.records(Note, [full, bare]) == [bare, full] == await trial.store.records(Note)
        ours, theirs = replace(full, version=2, content="{}"), replace(full, version=2, content="[]")
        assert await trial.store.records(Note, [ours]) == [bare, ours]
        assert await trial.store.records(Note, [theirs]) == [bare, ours]
        assert await trial.store.records(Note, [replace(full, version=4)]) == [bare, ours]
        assert await trial.store.records(Note, [Note("other", 2)]) == [bare, ours], "the first version is one"

    async def test_of_two_who_win_a_leader_at_one_instant_one_finds_it_written(self, trial: Trial) -> None:
        now = await trial.time.now()
        both = [Leader("import", 1, 1, name, "here:1", now, now + SECOND) for name in ("one", "two")]
        answers = await asyncio.gather(*(trial.store.records(Leader, [one]) for one in both))
        assert [one in answer for one, answer in zip(both, answers, strict=True)].count(True) == 1

    async def test_what_is_in_hand_of_each_queue_is_counted_by_share_and_cost(self, trial: Trial) -> None:
        worker = await trial.worker()
        for share, cost in (("a", 1), ("a", 1), ("a", 3), (None, 1)):
            await trial.owned(worker, kind="@bank", share=share, cost=cost)
        await trial.owned(worker, kind="@airport")
        await trial.started(kind="@airport")
        await trial.done(finished(await trial.owned(worker, kind="@airport")))
        await trial.owned(worker)
        airport, bank = Load("airport", None, 1, 1), [Load("bank", None, 1, 1), Load("bank", "a", 1, 2)]
        assert await trial.store.records(Load) == [airport, *bank, Load("bank", "a", 3, 1)]

    async def test_unfinished_processes_in_nobody_s_hands_are_counted_by_kind_and_version(self, trial: Trial) -> None:
        assert await trial.store.records(Backlog) == []
        worker, now = await trial.worker(), await trial.time.now()
        await trial.started(code="2")
        await trial.started(code="2", due_at=now + 3600 * SECOND)
        await trial.started(code="2", deaths=2)
        await trial.started(kind="@bank", code="till")
        await trial.started(kind="suspects", code="", deaths=3)
        for status in (Status.RUNNING, Status.HELD, Status.BROKEN):
            await trial.done(resting(await trial.owned(worker, kind="asleep"), now + SECOND, status))
        await trial.owned(worker, kind="in hand")
        await trial.done(finished(await trial.owned(worker, kind="finished")))
        counted = [
            Backlog("@bank", "till", 1), Backlog("asleep", "1", 3), Backlog("order", "2", 3), Backlog("suspects", "", 1)
        ]  # fmt: skip
        assert await trial.store.records(Backlog) == counted

    async def test_of_each_kind_no_more_than_a_thousand_unfinished_processes_are_counted(self, trial: Trial) -> None:
        later = await trial.time.now() + 3600 * SECOND
        for part in range(3):
            rest = {"reminder": True, "opened_at": 1, "created_at": 1} if part == 2 else {}
            await trial.store.start([Start(trial.process(due_at=later, **rest)) for _ in range(400)])
        assert await trial.store.records(Backlog) == [Backlog("order", "1", 1000)]

    async def test_what_waits_in_a_queue_is_counted_with_what_is_not_due_and_the_earliest_time(
        self, trial: Trial
    ) -> None:
        now = await trial.time.now()
        due = [await trial.started(kind="@bank", due_at=now + seconds * SECOND) for seconds in (5, 20, 60)]
        await trial.started(kind="@airport")
        await trial.started(kind="order")
        held = await trial.owned(await trial.worker(), kind="@bank")
        assert held.id not in [row.id for row in due]
        await trial.time.advance(30)
        airport, bank = await trial.store.records(QueueDepth)
        assert (airport.name, airport.waiting, airport.delayed) == ("airport", 1, 0)
        assert bank == QueueDepth("bank", 3, 1, now + 5 * SECOND)

    async def test_what_waits_in_a_queue_under_several_labels_is_counted_as_one(self, trial: Trial) -> None:
        now = await trial.time.now()
        for label, seconds in (("", 60), ("", 5), ("till-3", 2), ("till-4", 90)):
            await trial.started(kind="@printer", code=label, due_at=now + seconds * SECOND)
        await trial.time.advance(30)
        assert await trial.store.records(QueueDepth) == [QueueDepth("printer", 4, 2, now + 2 * SECOND)]
