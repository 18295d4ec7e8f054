"""The wages, as whoever runs the example sees them."""

from __future__ import annotations

from tests.examples.conftest import Example


def test_wages_are_paid_once_though_a_worker_is_killed_in_the_middle_of_one(example: Example) -> None:
    printed = example("wages")
    assert printed == [
        "killed while Bob was paid: firm 200, Ann 100, Bob 0, Cid 0",
        "the firm has had left: [200, 100, 0]",
        "everybody is paid once: firm 0, Ann 100, Bob 100, Cid 100",
    ]
