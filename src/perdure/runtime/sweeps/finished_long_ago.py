"""Sweep: processes that finished longer ago than the retention. They are removed; their keys are kept a while.

A worker with rules of retention removes by these, once it has archived what they say; then the store removes none by
its age alone. Former runs of processes that go on for ever are removed too: the present run and the one before it stay.
"""

from __future__ import annotations

from perdure import limits
from perdure.clock import microseconds
from perdure.logs import logger
from perdure.runtime.sweep_round import left
from perdure.runtime.sweeps.context import SweepContext

log = logger("recovery")

SECONDS = 30.0
COUNTER = "processes_pruned"


async def sweep(context: SweepContext) -> int:
    """Remove up to one batch of finished processes with their events and messages, and of former runs."""
    retention, keys, most = microseconds(context.retention), microseconds(context.key_retention), limits.SWEEP_ROWS
    by_rules = await _by_rules(context)
    context.pruned = await context.store.prune(retention, keys, most, context.pruned.behind)
    context.telemetry.count("runs_pruned", context.pruned.runs)
    return by_rules + context.pruned.processes


async def _by_rules(context: SweepContext) -> int:
    """Remove up to one batch by each rule of the worker, if it has any."""
    if context.remover is None:
        return 0
    before, done = context.ruled, await context.remover.round()
    context.ruled = done
    context.telemetry.count("processes_archived", done.archived)
    left(done.left)
    if done.unwritable and (before is None or before.unwritable != done.unwritable):
        log.warning("%s; make it writable, or change the rule", done.unwritable)
    return done.removed


def more(context: SweepContext) -> bool:
    """Whether the last round may have left some of what it found."""
    pruned, ruled = context.pruned, context.ruled
    return bool(pruned.runs) or pruned.keys >= limits.SWEEP_ROWS or (ruled is not None and ruled.more)
