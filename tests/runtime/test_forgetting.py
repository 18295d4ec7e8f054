"""What a worker remembers of many processes for a while costs the same for each, however many they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from perdure import limits
from perdure.runtime.bringing import CROWDED_SECONDS, Bringing
from perdure.runtime.shortage import Shortages
from perdure.telemetry import Telemetry

MANY = 3_000


class Instant(float):
    """A time of the monotonic clock that counts how often times are compared."""

    compared = 0

    def __add__(self, seconds: float) -> Instant:
        return Instant(float(self) + seconds)

    def __sub__(self, seconds: float) -> Instant:
        return Instant(float(self) - seconds)

    def __gt__(self, other: float) -> bool:
        Instant.compared += 1
        return float(self) > float(other)

    def __le__(self, other: float) -> bool:
        return not self > other


def test_crowded_processes_are_remembered_for_a_second() -> None:
    now = Instant(7.0)
    scheduler: Any = SimpleNamespace(parts=SimpleNamespace(time=SimpleNamespace(monotonic=lambda: now)))
    bringing = Bringing(scheduler)
    for later in (0.0, CROWDED_SECONDS / 2, CROWDED_SECONDS):
        now, Instant.compared = Instant(7.0 + later), 0
        for number in range(MANY):
            bringing.crowded(b"%d" % number)
        assert Instant.compared <= 2 * MANY
    now = Instant(8.0 + CROWDED_SECONDS)
    bringing.crowded(b"the last")
    assert list(bringing._crowded) == [b"the last"], "the time of all others is over"


def test_what_is_put_off_for_a_shortage_is_remembered_for_as_long_as_it_lasts() -> None:
    now, minute = Instant(7.0), limits.SHORTAGE_ATTEMPT_SECONDS
    shortages = Shortages(Telemetry(), lambda: now)
    for later, patient in ((0.0, True), (minute / 2, True), (minute, False)):
        now, Instant.compared = Instant(7.0 + later), 0
        assert [shortages.patient(number) for number in range(MANY)] == [patient] * MANY
        assert Instant.compared <= 3 * MANY
    now = Instant(8.0 + 3 * minute)
    assert shortages.patient("the last")
    assert list(shortages._patience) == ["the last"], "nothing was heard of all others for long"
