"""Sweep: processes due for a minute that no live worker takes. Reported, never started: there is nobody to do it."""

from __future__ import annotations

from perdure.kernel.finding import Finding
from perdure.limits import SWEEP_ROWS
from perdure.runtime.ward import Ward
from perdure.store.base import Overdue

SECONDS = 30.0
COUNTER = "processes_unhosted"


async def sweep(ward: Ward) -> int:
    """Report the kinds and versions that wait for a worker, once per round and kind."""
    rows = await ward.store.overdue(Overdue.UNHOSTED, SWEEP_ROWS)
    waiting: dict[tuple[str, str], bytes] = {}
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        waiting.setdefault((row.kind, row.code), row.id)
        counts[row.kind, row.code] = counts.get((row.kind, row.code), 0) + 1
    for (kind, code), first in waiting.items():
        version = f" version {code!r}" if code else ""
        some = f"{counts[kind, code]} processes of kind {kind!r}{version} have been due for over a minute"
        ward.found(Finding("nobody_hosts", first, f"{some}; start a worker that hosts it, or one more if all are busy"))
    return len(rows)
