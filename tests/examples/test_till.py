"""The till, as whoever runs it sees it."""

from __future__ import annotations

from tests.examples.conftest import Example


def test_a_till_killed_in_its_transaction_has_sold_and_billed_what_it_committed(example: Example) -> None:
    printed = example("till")
    assert printed == [
        "sold: a book",
        "billed: a bill for a book",
        "processes: 1",
        "sold again: a bill for a lamp",
    ]
