"""The dispatch: the bank is spared while it is down, nobody is charged twice, and what is not sent is paid back."""

from __future__ import annotations

from tests.examples.conftest import Example


def test_the_bank_is_spared_and_the_books_are_right_though_a_worker_is_killed(example: Example, store_url: str) -> None:
    assert example("dispatch", store_url) == [
        "the bank is down: its breaker is open, for all workers",
        "40 orders, of up to 9 attempts each, have called it less than 100 times: True",
        "36 orders were sent, 4 were refused:",
        "  step 'send' failed, tried once: Permanent: the carrier takes no glass",
        "charged: 36, sent: 36",
        "the breaker is closed",
    ]
