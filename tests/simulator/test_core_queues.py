"""Limits of a queue hold after every transaction, whatever happens to the workers that serve it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from perdure.kernel.move import over_limit
from perdure.kernel.process import Process
from perdure.kernel.queue import Queue
from perdure.testing.simulator import simulate
from perdure.testing.simulator.charge import Charges
from tests.simulator import core_queues
from tests.simulator.form import seeds


@pytest.mark.parametrize("seed", seeds(3, 30))
def test_no_more_of_a_queue_runs_than_its_limit_in_any_weather(seed: int) -> None:
    simulate(core_queues.limited_queue, seed, workflows=[core_queues]).check()


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_a_customer_with_many_wishes_does_not_keep_others_waiting_at_a_till_with_one_place(seed: int) -> None:
    simulate(core_queues.one_till, seed, workflows=[core_queues]).check()


@pytest.mark.parametrize("seed", seeds(3, 30))
def test_queued_steps_that_were_given_up_are_not_run_whoever_dies_meanwhile(seed: int) -> None:
    simulate(core_queues.given_up, seed, workflows=[core_queues]).check()


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


def test_what_begins_before_its_rate_lets_it_is_told_whatever_the_row_of_the_queue_says() -> None:
    charges, bank = Charges(), Queue("bank", rate=2, per=1000)
    assert not list(charges.taken(bank, [task(1), task(2)], 0))
    assert not list(charges.taken(bank, [task(3)], 500))
    assert list(charges.taken(bank, [task(4)], 999))
    assert not list(charges.taken(replace(bank, version=2), [task(5)], 999))
