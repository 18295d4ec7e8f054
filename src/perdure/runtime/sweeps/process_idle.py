"""Sweep: processes whose reminder is due: idle, held or broken ones. They are checked and reminded again later.

No turn is run and no history is replayed: a million sleepers must cost nothing.
"""

from __future__ import annotations

import logging

from perdure.kernel import transition
from perdure.kernel.names import id_text
from perdure.kernel.process import Status
from perdure.limits import SWEEP_ROWS
from perdure.runtime.ward import Ward
from perdure.store.base import Overdue

log = logging.getLogger("perdure")

SECONDS = 10.0
COUNTER = "processes_idle"


async def sweep(ward: Ward) -> int:
    """Look at up to one batch of reminders and move each on; people are reminded of held and broken processes."""
    rows = await ward.store.overdue(Overdue.IDLE, SWEEP_ROWS)
    for row in rows:
        if row.status is not Status.RUNNING:
            log.warning("process %s (%s) is %s and waits for a person", id_text(row.id), row.kind, row.status)
    return await ward.write([transition.reminded(row, idle_at=ward.time.idle_at()) for row in rows])
