"""The figures of a worker: what it has counted and holds, told with its heartbeats to whoever looks at the database.

They are a JSON text in the worker's row. Another version of Perdure may tell more of them, or fewer.
"""

from __future__ import annotations

from msgspec import Struct, json

from perdure.kernel.stored import MALFORMED

TOLD = (
    "starts", "turns", "steps", "step_failures", "step_timeouts", "commits", "claims", "takeovers", "leases_lost",
    "completed", "failed", "cancelled", "broken", "store_errors",
)  # fmt: skip
"""The counters that a worker tells."""


class Figures(Struct, frozen=True, omit_defaults=True):
    """What a worker tells. ``at`` is the store's time, ``polled_at`` that of its last look for due work; microseconds.

    ``held`` of ``slots`` processes are held. ``counters`` count since the worker began, and ``rates`` say how many of
    each there were in a second, between the two last beats that told figures. ``metrics`` is the port of its metrics,
    or 0.
    """

    at: int = 0
    held: int = 0
    slots: int = 0
    polled_at: int = 0
    metrics: int = 0
    counters: dict[str, int] = {}
    rates: dict[str, float] = {}

    def encode(self) -> bytes:
        """The JSON that stands in the worker's row."""
        return json.encode(self)


_decode = json.Decoder(Figures).decode


def figures_of(raw: bytes | None) -> Figures:
    """What a worker has told; nothing if it is of a version that tells nothing, or another form."""
    if raw is None:
        return Figures()
    try:
        return _decode(raw)
    except MALFORMED:
        return Figures()
