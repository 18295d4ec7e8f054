"""The library's own workflows: what runs behind a schedule, an operation, a check run and a webhook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure.authoring.registry import Registry
from perdure.authoring.workflow import Workflow
from perdure.kernel.names import LIBRARY


def library_workflows() -> Iterator[Workflow[Any, Any]]:
    """All of them: every worker hosts them. A program that only is a client imports them when it asks for one."""
    from perdure.authoring.check.machine import CheckMachine
    from perdure.authoring.operation.machine import OperationMachine
    from perdure.authoring.schedule.machine import ScheduleMachine
    from perdure.authoring.webhook import webhook

    yield from (ScheduleMachine.__machine__, OperationMachine.__machine__, CheckMachine.__machine__, webhook)


def with_library_kind(registry: Registry, kind: str) -> Registry:
    """The registry, which knows that kind from now on if it is one of the library's own."""
    if kind.startswith(LIBRARY) and kind not in registry.kinds:
        for workflow in library_workflows():
            if workflow.name == kind:
                registry.add(workflow)
    return registry
