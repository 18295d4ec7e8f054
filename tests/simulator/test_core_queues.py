"""Limits of a queue hold after every transaction, whatever happens to the workers that serve it (S14)."""

from __future__ import annotations

import pytest

from perdure.kernel.move import over_limit
from perdure.kernel.process import Process
from perdure.kernel.queue import Queue
from perdure.testing.simulator import simulate
from tests.simulator import core_queues


@pytest.mark.parametrize("seed", range(30))
def test_no_more_of_a_queue_runs_than_its_limit_in_any_weather(seed: int) -> None:
    simulate(core_queues.limited_queue, seed, workflows=[core_queues]).check()


def task(number: int, share: str | None = None, cost: int = 1) -> Process:
    return Process(bytes([number]) * 16, "@bank", None, b"", owner=b"w" * 16, share=share, cost=cost)


def test_what_is_over_a_limit_is_told() -> None:
    assert not list(over_limit(Queue("bank", concurrency=2), [task(1), task(2)], 0))
    for queue in (
        Queue("bank", concurrency=1),
        Queue("bank", share_concurrency=1),
        Queue("bank", blocked_at=1),
        Queue("bank", rate=1, per=1000, next_at=5000),
    ):
        assert list(over_limit(queue, [task(1), task(2)], 0)), queue
