"""A queue with limits: what a cost weighs, how fast tasks begin, whose turn it is, and what people are told."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.kernel.diagnosis import next_mover
from perdure.kernel.process import Process
from perdure.kernel.queue import Load, Queue, QueueLoads, WaitingTask, changed, choice, reach, weights

NOW = 1_000_000_000
TASK = Process(b"1" * 16, "@bank", None, b"{}", due_at=NOW)


def waiting(number: int, share: str | None = None, weight: int = 1, priority: int = 4, **fields: Any) -> WaitingTask:
    return WaitingTask(bytes([number]) * 16, priority, share, weight, NOW + number, **fields)


@pytest.mark.parametrize(("cost", "weight"), [(1, 1), (3, 3), (4, 3), (99, 3)])
def test_a_cost_above_a_limit_counts_as_the_whole_of_it(cost: int, weight: int) -> None:
    assert Queue("bank", concurrency=9, share_concurrency=3, rate=5).weight(cost) == weight


def test_a_rate_pays_back_evenly_and_a_rest_saves_up_one_period() -> None:
    queue = Queue("bank", rate=4, per=8)
    assert (queue.pace(NOW), Queue("bank").pace(NOW)) == (4, None)
    queue = queue.paid(3, NOW)
    assert [queue.pace(NOW + later) for later in (0, 1, 2, 4, 6, 600)] == [1, 1, 2, 3, 4, 4]
    assert queue.payable_at(2) == NOW + 2


def test_a_changed_rate_keeps_no_debt_longer_than_its_period() -> None:
    old = Queue("bank", 1, rate=1, per=1_000_000).paid(9, NOW)
    new = changed(old, Queue("bank", 2, rate=1, per=10, changed_at=NOW, next_at=5, turn="x"))
    assert (new.next_at, new.turn) == (NOW + 10, "")


def test_shares_take_turns_by_what_runs_of_each_and_then_by_who_waits_longest() -> None:
    tasks = [waiting(1, "a"), waiting(2, "a"), waiting(3, "b"), waiting(4, None), waiting(5, "c", priority=0)]
    found = choice(Queue("bank"), tasks, {"a": 1}, 9, None)
    assert [task.id[0] for task in found.taken] == [5, 3, 4, 1, 2]
    assert (found.refused, found.more) == (None, False)


def test_nothing_passes_by_a_task_for_which_there_is_no_room() -> None:
    found = choice(Queue("bank"), [waiting(1), waiting(2, weight=5), waiting(3)], {}, 9, 4)
    assert ([task.id[0] for task in found.taken], found.refused) == ([1], 5)


def test_a_look_that_ended_before_the_tasks_did_says_so() -> None:
    tasks = [waiting(1), waiting(2, last=True)]
    assert [choice(Queue("bank"), tasks, {}, most, None).more for most in (1, 2)] == [True, True]
    assert not choice(Queue("bank"), tasks[:1], {}, 2, None).more


@pytest.mark.parametrize(("most", "room", "shares", "each"), [(10, None, 1, 10), (10, 4, 1, 4), (10, None, 5, 4)])
def test_of_each_share_no_more_is_read_than_could_be_taken(most: int, room: int | None, shares: int, each: int) -> None:
    assert reach(most, room, shares) == each


def test_what_runs_is_summed_by_share() -> None:
    assert weights(Queue("bank", concurrency=3), [("a", 1, 2), ("a", 9, 1), (None, 1, 4)]) == {"a": 5, None: 4}


@pytest.mark.parametrize(
    ("limits", "who", "told"),
    [
        ({"blocked_at": 1, "blocked_by": "ana", "blocked_why": "no money"}, "person", "is blocked by ana: no money"),
        ({"blocked_at": 1}, "person", "is blocked by somebody"),
        ({"concurrency": 5}, "worker", "is full (5 of 5)"),
        ({"share_concurrency": 5}, "worker", "is full for tasks without a share (5 of 5)"),
        ({"rate": 5, "per": 60_000_000, "next_at": NOW + 70_000_000}, "worker", "is at its rate (5 in 60 s)"),
    ],
)
def test_people_are_told_why_a_queue_keeps_a_task(limits: dict[str, Any], who: str, told: str) -> None:
    standing = QueueLoads((Queue("bank", **limits),), (Load("bank", None, 1, 5), Load("other", None, 1, 99)))
    mover = next_mover(TASK, NOW, {}, standing)
    assert (mover.who, mover.text, mover.since) == (who, f"queue bank {told}", NOW)


def test_what_no_queue_keeps_waits_for_a_worker() -> None:
    standing = QueueLoads((Queue("bank", concurrency=6),), (Load("bank", None, 1, 5),))
    assert next_mover(TASK, NOW, {}, standing).text == "it is due, and no live worker serves queue 'bank'"
