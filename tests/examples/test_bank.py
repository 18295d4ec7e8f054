"""The bank: whatever happens to its workers, each transfer moves its money once, and the books are right."""

from __future__ import annotations

from tests.examples.conftest import Example


def test_each_transfer_counts_once_though_workers_are_killed(example: Example, store_url: str) -> None:
    assert example("bank", store_url) == [
        "100 transfers, while 4 workers were killed",
        "and one was refused: step 'draw' failed, tried once: Refused: Ann has less than 1000000",
        "in all accounts together: 40000 of 40000 cents",
        "entries: 200 of 200",
    ]
