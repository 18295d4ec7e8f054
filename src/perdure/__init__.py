"""Perdure runs durable processes that right themselves: plain asyncio that survives crashes.

Everything that an application needs is imported from here; all errors are in :mod:`perdure.errors`, and what tests need
is in :mod:`perdure.testing`.
"""

from perdure.authoring import flow, machine
from perdure.authoring.context import context
from perdure.authoring.schedule import Schedule
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
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import (
    PerdureError,
    Permanent,
    ProcessFailed,
    StepError,
)
from perdure.kernel.breaker import Breaker
from perdure.kernel.notice import Notice
from perdure.kernel.policy import Policy
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.portal import BlockingEngine
from perdure.runtime.alerts import Alert
from perdure.runtime.options import WorkerOptions
from perdure.store.base import Search
from perdure.store.sealed import codec, offload
from perdure.turns.mailbox import Call
from perdure.turns.patches import patched
from perdure.turns.publication import publish, set_attributes
from perdure.turns.renewal import continue_as_new
from perdure.turns.saga import saga

__all__ = [
    "Alert",
    "BlockingEngine",
    "Breaker",
    "Call",
    "Engine",
    "Handle",
    "NamedWorkflow",
    "Notice",
    "PerdureError",
    "Permanent",
    "Policy",
    "ProcessFailed",
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
