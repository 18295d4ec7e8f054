"""The travel agency: whatever becomes of a journey, only those who travel keep their bookings."""

from __future__ import annotations

from tests.examples.conftest import Example


def test_only_those_who_travel_keep_their_bookings(example: Example, store_url: str) -> None:
    printed = example("travel", store_url)
    assert printed == [
        "Bob:  failed, 2 bookings given back",
        "Ann:  had a good time",
        "Cleo: had a good time",
        "Dan:  cancelled, 4 bookings given back",
        "Eve:  UndoFailed, 4 bookings not given back yet",
        "Eve:  cancelled, 4 bookings given back",
        "booked at the end: grand hotel for Ann, insurance of a room for Ann, night train for Ann, "
        "night train for Cleo, tent for Cleo, train back for Ann, train back for Cleo",
    ]
