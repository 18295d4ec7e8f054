"""The newsroom: whoever reads, early, late or again, reads the same."""

from __future__ import annotations

from tests.examples.conftest import Example


def test_readers_who_come_early_late_or_again_read_the_same(example: Example, store_url: str) -> None:
    assert example("newsroom", store_url) == [
        "goals by now: 1",
        "live: Gulls and Owls",
        "Gulls and Owls: 1 to nothing",
        "early and cut off have read the same: True",
        "  minute 12: a goal",
        "  minute 40: rain",
        "  minute 88: a dog on the pitch",
        "late has read the same: True",
    ]
