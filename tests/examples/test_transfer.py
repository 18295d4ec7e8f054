"""The credit transfer: the timetable of its question to the bank, and each way in which it may end."""

from __future__ import annotations

from tests.examples.conftest import Example


def test_a_bank_is_asked_at_its_times_and_each_answer_leads_where_the_table_says(example: Example) -> None:
    assert example("transfer") == [
        "the bank was asked after so many seconds: [0, 3, 6]",
        "and it was always the same question: True",
        "Ann: Failed: rejected",
        "Ben, after an interim answer: pending",
        "the bank was asked again: True",
        "Ben, after the last answer: settled",
        "Ben: settled: 700 cents of Ben by R-17",
        "Cem: Failed: rejected: RJCT AC04",
        "Dan: Aborted: it looks like a fraud",
        "its state and phase: {'state': 'aborted', 'phase': 'ABORTED'}",
    ]
