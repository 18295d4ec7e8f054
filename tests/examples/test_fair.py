"""The fair: in the rain all is taken back, by whoever has to do it; in the sun all stays."""

from __future__ import annotations

from tests.examples.conftest import Example


def test_in_the_rain_all_is_taken_back_and_in_the_sun_all_stays(example: Example, store_url: str) -> None:
    assert example("fair", store_url) == [
        "May:  failed; taken back: pay:1, stall:1, stall:2",
        "     0 stalls, 0 cents",
        "June: sunshine",
        "     2 stalls, 900 cents",
    ]
