"""Rescue by budget: sweeps that revive processes ask here how many of them they may revive now."""

from __future__ import annotations

from perdure import limits
from perdure.kernel.note import Note
from perdure.kernel.queue import Queue
from perdure.kernel.recovery_budget import NAME, RecoveryBudget
from perdure.store.base import Store


async def granted(store: Store, switch: Queue, many: int, worker: bytes) -> int:
    """Take up to so many revivals out of the budget of all workers; how many there were."""
    for _ in range(limits.COMMAND_TRIES):
        note = next((one for one in await store.records(Note) if one.name == NAME), Note(NAME))
        now, budget = await store.now(), note.read(RecoveryBudget)
        room = budget.left(switch, now)
        take = many if room is None else min(room, many)
        if take <= 0:
            return 0
        # If we die here these are spent, and nothing was revived: others wait a little longer for that.
        change = note.next(budget.spent(switch, take, worker.hex(), now), now)
        if change in await store.records(Note, [change]):
            return take
    return 0
