"""The row of an operation: the plan that its process was started with, and what has become of it."""

from __future__ import annotations

from msgspec import json
from msgspec.structs import replace

from perdure.authoring.operation.machine import OperationMachine
from perdure.authoring.operation.plan import OperationPlan, OperationStatus
from perdure.errors import PerdureError
from perdure.kernel.checkpoint import has_begun
from perdure.kernel.diagnosis import ending
from perdure.kernel.process import Process

NOT_BEGUN = "waits for a worker"
NOT_READ = "cannot be read here"
"""The phases of operations whose rows say nothing: not yet, and not to who has no key."""


def told_of(row: Process) -> OperationStatus:
    """What can be told of an operation by its row, whatever it says."""
    try:
        return outcome_of(row) or OperationStatus(NOT_BEGUN)
    except PerdureError:
        return OperationStatus(NOT_READ)


def known_outcome(row: Process) -> OperationStatus | None:
    """What the row of an operation says, if it says something that can be read here."""
    try:
        return outcome_of(row)
    except PerdureError:
        return None


def outcome_of(row: Process) -> OperationStatus | None:
    """What the row of an operation says, if it says something yet; raises UnreadablePayload.

    One whose process was ended by a command or an error, and not by its own code, is aborted.
    """
    said = json.decode(row.state or b"{}", type=OperationStatus) if has_begun(row.state) else None
    if not row.final or (said is not None and said.ended):
        return said
    said = said or OperationStatus(NOT_BEGUN)
    return replace(said, phase="aborted", stopped=said.stopped or f"its process {ending(row)}", paused="", waits="")


def plan_of(row: Process) -> OperationPlan:
    """The plan of an operation, from the input of its process."""
    (plan, _), _ = OperationMachine.__machine__.shape.decode(row.input)
    return plan  # type: ignore[no-any-return]
