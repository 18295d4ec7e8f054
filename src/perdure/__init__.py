"""Perdure runs durable processes that right themselves: plain asyncio that survives crashes.

Everything that an application needs is imported from here; all errors are in :mod:`perdure.errors`, and what tests need
is in :mod:`perdure.testing`.
"""

from typing import TYPE_CHECKING

from perdure.authoring.context import context
from perdure.authoring.start import NamedWorkflow
from perdure.authoring.step import Step, attempt, step
from perdure.authoring.workflow import (
    Workflow,
    new_uuid,
    now,
    process_id,
    random_source,
    receive,
    set_state,
    tell,
    workflow,
)
from perdure.errors import (
    PerdureError,
    Permanent,
    ProcessFailed,
    StepError,
)
from perdure.kernel.breaker import Breaker
from perdure.kernel.kind import Limits
from perdure.kernel.policy import Policy
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.turns.mailbox import Call
from perdure.turns.patches import patched
from perdure.turns.publication import publish, set_attributes
from perdure.turns.renewal import continue_as_new
from perdure.turns.saga import saga

if TYPE_CHECKING:
    from perdure.authoring import flow, machine
    from perdure.authoring.schedule import Schedule
    from perdure.client.alerting.rule import AlertRule
    from perdure.client.handle import Handle
    from perdure.engine import Engine
    from perdure.kernel.notice import Notice
    from perdure.kernel.retention import RetentionRule
    from perdure.portal import BlockingEngine
    from perdure.runtime.alerts import Alert
    from perdure.runtime.options import WorkerOptions
    from perdure.store.base import Search
    from perdure.store.sealed import codec, offload

__all__ = [
    "Alert",
    "AlertRule",
    "BlockingEngine",
    "Breaker",
    "Call",
    "Engine",
    "Handle",
    "Limits",
    "NamedWorkflow",
    "Notice",
    "PerdureError",
    "Permanent",
    "Policy",
    "ProcessFailed",
    "RetentionRule",
    "Retry",
    "Schedule",
    "Search",
    "Status",
    "Step",
    "StepError",
    "WorkerOptions",
    "Workflow",
    "attempt",
    "codec",
    "context",
    "continue_as_new",
    "flow",
    "machine",
    "new_uuid",
    "now",
    "offload",
    "patched",
    "process_id",
    "publish",
    "random_source",
    "receive",
    "saga",
    "set_attributes",
    "set_state",
    "step",
    "tell",
    "workflow",
]

_LATE = {
    "Alert": "perdure.runtime.alerts",
    "AlertRule": "perdure.client.alerting.rule",
    "BlockingEngine": "perdure.portal",
    "Engine": "perdure.engine",
    "Handle": "perdure.client.handle",
    "Notice": "perdure.kernel.notice",
    "RetentionRule": "perdure.kernel.retention",
    "Schedule": "perdure.authoring.schedule",
    "Search": "perdure.store.base",
    "WorkerOptions": "perdure.runtime.options",
    "codec": "perdure.store.sealed.codec",
    "flow": "perdure.authoring.flow",
    "machine": "perdure.authoring.machine",
    "offload": "perdure.store.sealed.offload",
}
"""The modules of what is imported when it is first named: a program pays for the start of what it uses."""

if not TYPE_CHECKING:  # a type checker that saw this function would take every name for one that is there

    def __getattr__(name):
        """A name of ``__all__`` that is imported late."""
        from importlib import import_module

        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(_LATE[name])
        found = globals()[name] = module if module.__name__.endswith(f".{name}") else getattr(module, name)
        return found

    def __dir__():
        """All names, also those that are imported late."""
        return sorted({*globals(), *__all__})
