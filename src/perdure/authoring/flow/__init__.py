"""Flows: machines declared as a table of states and events. ``from perdure import flow``, then ``flow.Flow``."""

from perdure.authoring.flow.action import Action, FlowRequest, action, request
from perdure.authoring.flow.answer import Answer, interim
from perdure.authoring.flow.condition import Condition, condition
from perdure.authoring.flow.definition import Flow
from perdure.authoring.flow.event import FlowEvent, Happened, event, init
from perdure.authoring.flow.position import FlowPosition, process_of
from perdure.authoring.flow.row import all_of, any_of, on, table
from perdure.authoring.flow.state import State, Stretch, TimedOut

__all__ = [
    "Action",
    "Answer",
    "Condition",
    "Flow",
    "FlowEvent",
    "FlowPosition",
    "FlowRequest",
    "Happened",
    "State",
    "Stretch",
    "TimedOut",
    "action",
    "all_of",
    "any_of",
    "condition",
    "event",
    "init",
    "interim",
    "on",
    "process_of",
    "request",
    "table",
]  # fmt: skip
