"""Handing back: a process with which this worker cannot go on, for want of something, is left to others for a while.

One that a defect keeps from going on is parked as broken instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from perdure import limits
from perdure.clock import microseconds
from perdure.exhaustion import exhausted
from perdure.kernel.names import id_text
from perdure.logs import logger

if TYPE_CHECKING:
    from perdure.runtime.holder import Holder
    from perdure.runtime.instance import Instance

log = logger("process")


def let_go_what_waits(scheduler: Holder) -> None:
    """Hand back the processes whose steps this worker cannot begin: their leases are not renewed for nothing."""
    agent = scheduler.agent
    agent.shortages.look()
    if not agent.held_up():
        return
    for instance in list(scheduler.instances.values()):
        still = _waits(instance)
        if still is not None:
            if still():
                agent.shortages.cannot_serve(instance.process.kind, still)
            put_off(scheduler, instance)


def short(scheduler: Holder, instance: Instance, error: BaseException) -> bool:
    """Hand a process back if the error is a shortage of this worker; after a while it counts as the process's own."""
    what, shortages = exhausted(error), scheduler.agent.shortages
    if what is None or not shortages.patient(instance.process.id):
        return False
    shortages.refused(what, f"process {id_text(instance.process.id)}: {error!r:.200}")
    put_off(scheduler, instance)
    return True


def stuck(scheduler: Holder, instance: Instance, error: Exception) -> None:
    """Let a process go that a defect of ours would leave held here, with nothing under way for it."""
    if not short(scheduler, instance, error):
        log.error("process %s cannot go on; please report it", id_text(instance.process.id), exc_info=error)
        scheduler.park(instance, error)


def put_off(scheduler: Holder, instance: Instance) -> None:
    """Hand a process back for some seconds: another worker, or this one later, goes on with it."""
    scheduler.parts.telemetry.count("processes_put_off")
    scheduler.release(instance, microseconds(limits.SHORTAGE_WAIT_SECONDS))


def _waits(instance: Instance) -> Callable[[], bool] | None:
    """A function that tells whether a process's steps still cannot begin; None unless it waits for nothing else."""
    still = None
    for attempt_run in instance.steps.in_flight.values():
        if attempt_run.started:
            return None  # it is at work: it goes on here
        still = still or attempt_run.held_up()
    return None if instance.inputs or instance.events or instance.steps.announced else still
