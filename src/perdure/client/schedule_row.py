"""What the row of a schedule's process says of the schedule, also before a worker has seen it."""

from __future__ import annotations

from perdure.authoring.schedule.definition import Plan
from perdure.authoring.schedule.machine import ScheduleMachine
from perdure.authoring.schedule.occurrences import Standing, Target
from perdure.errors import PerdureError
from perdure.kernel.checkpoint import has_begun, parted
from perdure.kernel.process import Process
from perdure.logs import logger


def kept(row: Process) -> ScheduleMachine | None:
    """The schedule as it stands; None if it was removed. Raises UnreadablePayload, PayloadError."""
    kind = ScheduleMachine.__machine__
    if row.state is not None and has_begun(row.state):
        checkpoint, fields = parted(row.state)
        found: ScheduleMachine = kind.entity(fields, checkpoint.form)
        return None if found.target is None else found
    (name, plan, target, since), _ = kind.shape.decode(row.input)
    return made(name, plan, target, plan.timetable.beginning(since))


def made(name: str, plan: Plan, target: Target, cursor: int) -> ScheduleMachine:
    """A schedule that has done nothing yet."""
    fresh: ScheduleMachine = ScheduleMachine.__machine__.blank()
    fresh.name, fresh.plan, fresh.target, fresh.standing = name, plan, target, Standing(cursor)
    return fresh


def stands(row: Process, plan: Plan, target: Target) -> bool:
    """Whether a schedule is as it is to be; one that cannot be read here is to be as it is, and the log says why."""
    try:
        found = kept(row)
    except PerdureError as error:  # also StoreUnavailable, for a payload whose folder is away: the row was read
        said = "the schedule of workflow %r cannot be read here, and is left as it is: %s"
        logger("worker").warning(said, str(row.key), error)
        return True
    return found is not None and (found.plan, found.target) == (plan, target)
