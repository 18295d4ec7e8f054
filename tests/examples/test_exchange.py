"""The bureau of exchange: the same question is answered once, also when it is asked again later."""

from __future__ import annotations

from tests.examples.conftest import Example


def test_a_question_is_answered_once_however_often_it_is_asked(example: Example, store_url: str) -> None:
    assert example("exchange", store_url) == [
        "  the rate of GBP is looked up",
        "both got Offer(cents=800, number=1) and it is the same: True",
        "asked again: Offer(cents=800, number=1)",
        "quote was refused: ValueError: we have no XYZ",
        "exchange main-street has completed and has not answered 'quote'; its result says more",
        "offers made: 1",
    ]
