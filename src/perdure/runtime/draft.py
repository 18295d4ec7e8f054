"""A draft: the commit that writes all that has happened to a process in hand, before it is handed to the committer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure.kernel import transition
from perdure.kernel.command import sooner
from perdure.kernel.commit import Commit, Start
from perdure.kernel.message import Message
from perdure.kernel.outcome import Outcome
from perdure.kernel.process import FINAL
from perdure.kernel.quarantine import is_suspect
from perdure.runtime import publishing
from perdure.runtime.activation import Activation

if TYPE_CHECKING:
    from perdure.runtime.scheduler import Scheduler


def drafted(scheduler: Scheduler, activation: Activation, outcome: Outcome, *, inward: bool = False) -> Commit:
    """The commit that leaves this outcome; ``inward`` leaves out what goes to others."""
    cleared = activation.inherited is not None and not activation.inherited
    process = activation.process
    if process.progress is not None or activation.reported:
        process = replace(process, progress=activation.progress())
    if activation.until is not None:
        process = replace(process, deadline=sooner(process.deadline, activation.until))
    shows = activation.loop.publications is not None
    if shows:
        process = publishing.shown(activation, process)
    starts: tuple[Start, ...] = ()
    sends: tuple[Message, ...] = ()
    if activation.outbox is not None and not inward:
        starts, sends = activation.outbox.dispatch(activation, scheduler.machine)
    idle_at = 0 if outcome.busy or outcome.status in FINAL else scheduler.time.idle_at(activation.workflow.idle)
    if cleared and is_suspect(process):
        scheduler.telemetry.count("suspects_cleared")
    commit = transition.turn(
        process,
        activation.events,
        outcome,
        now=activation.at,
        lease=scheduler.lease,
        idle_at=idle_at,
        consumed=tuple(sorted(activation.consumed.items())) if activation.consumed else (),
        not_before=activation.not_before,
        cleared=cleared,
        starts=starts,
        sends=sends,
    )
    if shows:
        commit = publishing.told(commit, activation.process)
    activation.handed_over(commit, cleared=cleared)
    return commit
