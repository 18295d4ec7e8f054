"""The verbs of operations: which command each process is given, and which settings of a plan belong to which verb."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from perdure import limits
from perdure.authoring.operation.plan import UNDO, OperationPlan
from perdure.client.finding.grammar import parsed
from perdure.client.handle import Handle
from perdure.client.validation import arguments
from perdure.errors import InvalidInput
from perdure.kernel.names import near
from perdure.kernel.payload import encode
from perdure.kernel.plain import shown

OrderedBy = Mapping[str, str]
"""Who, why, and from which operation."""
Command = Callable[[Handle[Any], OperationPlan, OrderedBy], Awaitable[Any]]


class OperationVerb(Struct, frozen=True):
    """A verb: the command of it, the settings that it ``needs``, those that it ``takes``, and whether all ends with it.

    After a verb that ``ends`` or pauses a process nothing goes on that could fail again.
    """

    command: Command
    needs: frozenset[str] = frozenset()
    takes: frozenset[str] = frozenset()
    ends: bool = False


def _retry(handle: Handle[Any], plan: OperationPlan, said: OrderedBy) -> Awaitable[None]:
    return handle.retry(**said)


def _restart(handle: Handle[Any], plan: OperationPlan, said: OrderedBy) -> Awaitable[None]:
    return handle.restart(**said)


def _restart_from(handle: Handle[Any], plan: OperationPlan, said: OrderedBy) -> Awaitable[None]:
    return handle.restart_from(plan.step, **said)


def _repair(handle: Handle[Any], plan: OperationPlan, said: OrderedBy) -> Awaitable[None]:
    return handle.repair(plan.method, () if plan.value is None else plan.value, **said)


def _set_result(handle: Handle[Any], plan: OperationPlan, said: OrderedBy) -> Awaitable[None]:
    return handle.set_result(plan.step, plan.value, **said)


def _skip(handle: Handle[Any], plan: OperationPlan, said: OrderedBy) -> Awaitable[None]:
    return handle.skip(plan.step, **said)


def _edit_input(handle: Handle[Any], plan: OperationPlan, said: OrderedBy) -> Awaitable[None]:
    named = isinstance(plan.value, dict)
    args, kwargs = ([], plan.value) if named else (plan.value, {})
    return handle.edit_input(args, kwargs, restart=plan.restart, **said)


def _edit_fields(handle: Handle[Any], plan: OperationPlan, said: OrderedBy) -> Awaitable[None]:
    return handle.edit_fields(plan.value, **said)


def _hold(handle: Handle[Any], plan: OperationPlan, said: OrderedBy) -> Awaitable[None]:
    return handle.hold(**said)


def _resume(handle: Handle[Any], plan: OperationPlan, said: OrderedBy) -> Awaitable[None]:
    return handle.resume(**said)


def _terminate(handle: Handle[Any], plan: OperationPlan, said: OrderedBy) -> Awaitable[None]:
    return handle.terminate(**said)


def _fail(handle: Handle[Any], plan: OperationPlan, said: OrderedBy) -> Awaitable[None]:
    return handle.fail(**said)


def _remove(handle: Handle[Any], plan: OperationPlan, said: OrderedBy) -> Awaitable[None]:
    return handle.remove(force=plan.force, **said)


_STEP = frozenset({"step"})
VERBS: Mapping[str, OperationVerb] = {
    "retry": OperationVerb(_retry),
    "restart": OperationVerb(_restart),
    "restart-from": OperationVerb(_restart_from, _STEP),
    "repair": OperationVerb(_repair, frozenset({"method"}), frozenset({"value"})),
    "set-result": OperationVerb(_set_result, _STEP, frozenset({"value"})),
    "skip": OperationVerb(_skip, _STEP),
    "edit-input": OperationVerb(_edit_input, frozenset({"value"}), frozenset({"restart"})),
    "edit-fields": OperationVerb(_edit_fields, frozenset({"value"}), ends=True),
    "hold": OperationVerb(_hold, ends=True),
    "resume": OperationVerb(_resume),
    "terminate": OperationVerb(_terminate, ends=True),
    "fail": OperationVerb(_fail, ends=True),
    "remove": OperationVerb(_remove, takes=frozenset({"force"}), ends=True),
}
"""What an operation can do to each process: as the verb of the same name does it to one."""
_EXAMPLES = {"step": "step='charge'", "method": "method='corrected'", "value": "value=['A-17', 1300]"}


def ends(plan: OperationPlan) -> bool:
    """Whether nothing goes on after the command that could fail again."""
    return plan.verb == UNDO or VERBS[plan.verb].ends


def checked(plan: OperationPlan) -> OperationPlan:
    """The plan, if it can be carried out; raises InvalidInput, and PayloadError for a value that cannot be stored."""
    _check_verb(plan)
    if not plan.where.strip():
        raise InvalidInput('an operation needs a query, so that it is not given to all by mistake: "status = failed".')
    parsed(plan.where)
    return with_care(plan)


def _check_verb(plan: OperationPlan) -> None:
    verb = VERBS.get(plan.verb)
    if verb is None:
        raise InvalidInput(
            f"there is no operation {plan.verb!r}.{near(plan.verb, VERBS)} There are {', '.join(VERBS)}."
        )
    given = {"step": plan.step, "method": plan.method, "restart": plan.restart, "force": plan.force}
    given |= {"value": plan.value is not None}
    for name, there in given.items():
        if name in verb.needs and not there:
            raise InvalidInput(f"the operation {plan.verb!r} needs a {name}: {_EXAMPLES[name]}.")
        if there and name not in verb.needs | verb.takes:
            raise InvalidInput(f"the operation {plan.verb!r} takes no {name}.")
    encode(plan.value, what=f"the value of the operation {plan.verb!r}")
    if plan.verb == "edit-input":
        arguments(*([], plan.value) if isinstance(plan.value, dict) else (plan.value, {}))
    if plan.verb == "edit-fields" and not isinstance(plan.value, dict):
        raise InvalidInput("the operation 'edit-fields' needs fields with their values: value={'balance': 120}.")


def with_care(plan: OperationPlan) -> OperationPlan:
    """The plan, if it says rightly how carefully it is carried out; raises InvalidInput."""
    if plan.rate is not None and not 0 < plan.rate < 1_000_000:
        raise InvalidInput(f"the rate {shown(plan.rate)} is not processes a second, more than 0.")
    if not (isinstance(plan.canary, int) and 0 <= plan.canary <= limits.LIST_ROWS):
        raise InvalidInput(
            f"the canary {shown(plan.canary)} is not a number of processes from 0 to {limits.LIST_ROWS:,}."
        )
    for name in ("stop_at", "stop_when_relapsed"):
        if not 0 <= getattr(plan, name) <= 1:
            raise InvalidInput(f"{name}={shown(getattr(plan, name))} is not a share from 0 to 1.")
    if not (type(plan.stop_after_failures) is int and 0 <= plan.stop_after_failures < 10**9):
        raise InvalidInput(
            f"stop_after_failures={shown(plan.stop_after_failures)} is not a number of processes; 0 is never."
        )
    if not (type(plan.priority) is int and 0 <= plan.priority <= 9):
        raise InvalidInput(f"priority={shown(plan.priority)} is not a whole number from 0 (first) to 9.")
    for name in ("watch", "live"):
        if not 0 <= getattr(plan, name) <= 24 * 3600:
            raise InvalidInput(f"{name}={shown(getattr(plan, name))} is not seconds from 0 to a day.")
    return plan
