"""A failed attempt of a step, as its event keeps it: retry history survives revival."""

from __future__ import annotations

from msgspec import Struct, json

from perdure.kernel.failure import Failure
from perdure.kernel.recorded import reader


class FailedAttempt(Struct, frozen=True, omit_defaults=True):
    """The payload of an ``ATTEMPT_FAILED`` event. Times are microseconds by the store's clock.

    ``attempt`` counts from 1; ``since`` is when the first attempt began; the next begins at ``retry_at``.
    """

    attempt: int
    since: int
    retry_at: int
    failure: Failure

    def encode(self) -> bytes:
        """The JSON that is stored."""
        return json.encode(self)


decode_attempt = reader(FailedAttempt, "a recorded attempt")
"""The failed attempt that an event keeps."""
