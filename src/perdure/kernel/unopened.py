"""An unopened payload: bytes as the store keeps them, sealed, of which nobody here could or would make a value.

Whoever reads one gets its error; whoever only passes it on (a sweep, a person's command) loses nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from perdure.errors import PerdureError, UnreadablePayload

MARK = b"\xc1"
"""The first byte of a sealed payload. No JSON text begins with it, nor any text in UTF-8."""


class Unopened(bytes):
    """A sealed payload that was not opened, and ``why``: UnreadablePayload, or StoreUnavailable if only for now."""

    why: PerdureError

    def __new__(cls, raw: bytes, why: PerdureError) -> Unopened:
        """The bytes ``raw`` as they are stored."""
        made = super().__new__(cls, raw)
        made.why = why
        return made


def why_unopened(raw: bytes | None) -> PerdureError | None:
    """Why this payload is not open; None if it is."""
    if isinstance(raw, Unopened):
        return raw.why
    if raw is not None and raw[:1] == MARK:
        return UnreadablePayload(
            "the payload is sealed, and no codecs are configured here. Name the module that has them in PERDURE_SEAL, "
            "or give them to the engine; if its process is broken by now, run `perdure retry` then."
        )
    return None


def first_trouble(payloads: Iterable[bytes | None]) -> PerdureError | None:
    """Why the first of these payloads that is not open is not; None if all are."""
    return next((raw.why for raw in payloads if isinstance(raw, Unopened)), None)
