"""A problem: what an error of Perdure is to whoever asked over HTTP."""

from __future__ import annotations

from perdure import PerdureError
from perdure.errors import IllegalMove, InvalidInput, KeyConflict, ProcessError, ProcessNotFound, StoreUnavailable

CODES: tuple[tuple[type[PerdureError], int], ...] = (
    (ProcessNotFound, 404),
    (KeyConflict, 409),  # the number belongs to another order
    (IllegalMove, 409),  # it has ended already
    (ProcessError, 409),  # there is no result: it failed, was cancelled, or is broken
    (InvalidInput, 422),
    (StoreUnavailable, 503),  # trying again is right
    (PerdureError, 500),
)


def problem(error: PerdureError) -> tuple[dict[str, str], int]:
    """The body and the status code of an error."""
    code = next(code for kind, code in CODES if isinstance(error, kind))
    return {"error": type(error).__name__, "detail": str(error)}, code
