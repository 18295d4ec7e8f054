"""Policies at the terminal: what retries and timeouts a step of a workflow has, and what sets each of them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from perdure import settings
from perdure.authoring.queue import steps_named
from perdure.authoring.registry import Registry
from perdure.authoring.step import Step
from perdure.authoring.step_policies import StepPolicies, subjects
from perdure.cli import output
from perdure.cli.options import Json
from perdure.cli.rows import Rows
from perdure.errors import DefinitionError, InvalidInput
from perdure.kernel.names import near
from perdure.kernel.policy import OF_RETRY, PROPERTIES, setting_of

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
    """Show each property of a step's policy, and what sets it.

    Keys come from perdure.toml and PERDURE_POLICIES, as a worker that is started here reads them.

    Parameters
    ----------
    name
        The step of a workflow: order.*.charge.
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
    kind, _, step = known[name]
    found = [_explained(policies, kind, one) for one in steps_named(step)]
    if json:
        output.show_json(found[0] if len(found) == 1 else found)
        return
    for properties in found:
        rows = Rows("property", "value", "set by")
        for one in properties:
            rows.add(one.name, _shown(one.value), one.set_by)
        output.show(rows)


def _explained(policies: StepPolicies, kind: str, step: Step[Any, Any]) -> list[Property]:
    found, after = policies.found(kind, step), policies.applied(kind, step)
    lines = []
    for name in PROPERTIES:
        value = after.retry.numbers()[name] if name in OF_RETRY else getattr(after, name)
        by = found.get(name) or (found.get("backoffs") if name == "attempts" else None)  # one retry for each back-off
        if after.at_most_once and name in OF_RETRY:
            set_by = "at_most_once"
        elif by is not None:
            set_by = f"{by.key} in {by.source}"
        else:
            set_by = "the step" if setting_of(name) in step.declared else "default"
        lines.append(Property(name, value, set_by))
    return lines


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value)) or "none"
    if isinstance(value, dict):
        return " ".join(f"{name} {_shown(one)}" for name, one in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value).lower()
