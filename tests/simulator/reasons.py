"""Reasons: why a process may be broken or held in these histories. For any other reason it is the engine's doing."""

from __future__ import annotations

from msgspec import json

from perdure.authoring.task import task_of
from perdure.kernel.child import TOLD_FIRST, is_task
from perdure.kernel.failure import Failure
from perdure.kernel.process import Process, Status
from perdure.testing.simulator import Cluster
from tests.simulator.evidence import program_of
from tests.simulator.misfortune import by_the_weather_alone
from tests.simulator.program import Do, nodes


def require_a_reason(cluster: Cluster, row: Process) -> None:
    """Raise Violation if what is stored of a broken or a held process is no reason that a history has given."""
    failure = Failure.shown(row.error or b"{}")
    if row.status is Status.BROKEN:
        law, right = "broken_for_a_reason", _may_break(cluster, row, failure)
    else:
        law, right = "held_by_somebody", _may_be_held(failure)
    called = cluster.log.called(row)
    cluster.require(law, right, f"{called} is {row.status}: {failure.type}: {failure.message:.400}")


def _may_break(cluster: Cluster, row: Process, failure: Failure) -> bool:
    if failure.type == "UndoFailed":
        return any(do.undo_fatal for do in _steps(row))
    if failure.type in ("Poison", "Hung"):
        return any(do.deadly for do in _steps(row)) or by_the_weather_alone(cluster, row)
    return failure.type == "HistoryMisfit"  # another law says who may be said not to fit


def _may_be_held(failure: Failure) -> bool:
    if failure.type == "Held":
        return failure.message.startswith("by Ann") or TOLD_FIRST in failure.message
    return failure.type == "HistoryTooLong"


def _steps(row: Process) -> list[Do]:
    """The steps that a process runs itself; those in a queue are processes of their own."""
    if is_task(row.kind):
        [told, *_] = json.decode(bytes(task_of(row.input).call))
        return [json.decode(json.encode(told), type=Do)]
    return [node for node in nodes(program_of(row).body, children=False) if isinstance(node, Do)]


def root_of(cluster: Cluster, row: Process) -> bytes:
    """The process of a person from which another one descends; itself, if it is one."""
    while row.parent is not None:
        row = cluster.monitor.known[row.parent].process
    return row.id
