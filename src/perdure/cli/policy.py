"""Policies at the terminal: what retries and timeouts a step, or an action of a flow, has, and what sets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from perdure import settings
from perdure.authoring.flow.action import OF_REQUEST, Action, FlowRequest
from perdure.authoring.flow.state import Timed
from perdure.authoring.queue import step_names, steps_named
from perdure.authoring.registry import Registry
from perdure.authoring.step import Step
from perdure.authoring.step_policies import StepPolicies, done_in, subjects, timed_in
from perdure.cli import output
from perdure.cli.options import Json
from perdure.cli.rows import Rows
from perdure.errors import DefinitionError, InvalidInput
from perdure.kernel.names import near
from perdure.kernel.policy import OF_RETRY, PROPERTIES, Ruling, setting_of

OF_STATES = ("at_most_once", "revival_delay")
"""The properties that a state of a flow may set for its actions."""

policy = App(name="policy", help="Show which retries and timeouts steps have.", help_format="plaintext")


class Property(msgspec.Struct, frozen=True):
    """One property of a step's policy, and what sets it: a key of a source, the step itself, or nothing."""

    name: str
    value: Any
    set_by: str


@policy.command
def explain(
    name: str,
    modules: Annotated[list[str], Parameter(name="module", negative="", consume_multiple=True)],
    *,
    json: Json = False,
) -> None:
    """Show each property of the policy of a step, or of an action or request of a flow, and what sets it.

    Keys come from perdure.toml and PERDURE_POLICIES, as a worker that is started here reads them.

    Parameters
    ----------
    name
        The step of a workflow: order.*.charge. Of a flow: Claim.paying.transfer, an action, a request or a step; or
        Claim.paying.paying, the time of a state, or of a stretch that begins in it.
    modules
        The code that defines them: shop, shop.orders, shop:order or ./shop.py.
    """
    try:
        Registry(*modules)
        policies = StepPolicies(settings.policies())
        policies.check()
    except DefinitionError as error:
        raise InvalidInput(str(error)) from None
    known = {".".join(subject): subject for subject in subjects()}
    if name not in known:
        raise InvalidInput(f"{name!r:.200} is no step of a workflow of {', '.join(modules)}.{near(name, known)}")
    kind, state, part = known[name]
    actions = done_in().get(kind, {}).get(state, {})
    if part in actions:
        found = [_explained_action(policies, kind, state, actions[part])]
    elif part not in step_names():
        found = [_explained_time(policies, kind, state, timed_in()[kind][state][part])]
    else:
        found = [
            _explained(policies, kind, state, one, next(iter(actions.values()), None)) for one in steps_named(part)
        ]
    if json:
        output.show_json(found[0] if len(found) == 1 else found)
        return
    for properties in found:
        rows = Rows("property", "value", "set by")
        for one in properties:
            rows.add(one.name, _shown(one.value), one.set_by)
        output.show(rows)


def _explained_action(policies: StepPolicies, kind: str, state: str, action: Action) -> list[Property]:
    found = policies.of_action(kind, state, action)
    after = action.by_policy({name: one.value for name, one in found.items()})
    lines = []
    for name in ("timeout", *OF_STATES, "keep_arguments", *(OF_REQUEST if isinstance(after, FlowRequest) else ())):
        value = getattr(after.retry if isinstance(after, FlowRequest) and name in OF_REQUEST else after, name)
        lines.append(Property(name, value, _set_by(name, found, action, after, action)))
    return lines


def _explained_time(policies: StepPolicies, kind: str, state: str, timed: Timed) -> list[Property]:
    by = policies.of_time(kind, state, timed).get("timeout")
    set_by = f"the {type(timed).__name__.lower()}" if by is None else f"{by.key} in {by.source}"
    return [Property("timeout", policies.limit(kind, state, timed), set_by)]


def _explained(
    policies: StepPolicies, kind: str, state: str, step: Step[Any, Any], one: Action | None
) -> list[Property]:
    """The policy of a step; in a state of a flow ``one`` of its actions, which all have what the state says."""
    by_state = (False, None) if one is None else (one.at_most_once, one.revival_delay)
    found, after = policies.found(kind, step, state), policies.applied(kind, step, state, *by_state)
    lines = []
    for name in PROPERTIES:
        value = after.retry.numbers()[name] if name in OF_RETRY else getattr(after, name)
        lines.append(Property(name, value, _set_by(name, found, step, after, one)))
    return lines


def _set_by(
    name: str,
    found: Mapping[str, Ruling],
    before: Step[Any, Any] | Action,
    after: Step[Any, Any] | Action,
    in_state: Action | None,
) -> str:
    by = found.get(name) or (found.get("backoffs") if name == "attempts" else None)  # one retry for each back-off
    by_state = in_state is not None and name in OF_STATES and getattr(in_state, name) not in (False, None)
    if after.at_most_once and name in OF_RETRY:
        return "at_most_once"
    if by_state and (by is None or name == "at_most_once"):
        return "the flow"
    if by is not None:
        return f"{by.key} in {by.source}"
    if setting_of(name) in before.declared:
        return "the step" if isinstance(before, Step) else f"the {before.mark}"
    return "default"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value)) or "none"
    if isinstance(value, dict):
        return " ".join(f"{name} {_shown(one)}" for name, one in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value).lower()
