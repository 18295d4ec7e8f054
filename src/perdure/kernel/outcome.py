"""An outcome: what a turn left behind, in the terms that decide the process's next row."""

from __future__ import annotations

from msgspec import Struct

from perdure.kernel.process import Status


class Outcome(Struct, frozen=True, gc=False):
    """What a turn left behind.

    ``busy``: steps are in flight, or something comes so soon that the owner keeps the row. ``wake_at``: the
    earliest timer or retry (microseconds), if any. ``awaiting``: what it waits for, for people.
    """

    status: Status = Status.RUNNING
    busy: bool = False
    wake_at: int | None = None
    awaiting: str | None = None
    state: bytes | None = None
    result: bytes | None = None
    error: bytes | None = None


STILL_BUSY = Outcome(busy=True)
