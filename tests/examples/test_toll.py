"""The toll road: two lanes are never more, and nobody's convoy keeps the others waiting."""

from __future__ import annotations

from tests.examples.conftest import Example


def test_the_lanes_are_never_more_than_there_are_and_the_hauliers_take_turns(example: Example, store_url: str) -> None:
    assert example("toll", store_url) == [
        "the road is closed by Ann: snow",
        "Small: 3 have passed, the other convoy is on its way: True",
        "Large & Sons: 35 have passed",
        "never more than 2 lanes were taken",
    ]
