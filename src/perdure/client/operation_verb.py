"""The verbs of operations: which command each process is given, and which settings of a plan belong to which verb."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perdure import limits
from perdure.authoring.operation.plan import UNDO, OperationPlan
from perdure.authoring.start import checked_priority
from perdure.client import deadline, decision, validation
from perdure.client.decision import Arguments, Decision
from perdure.client.finding.grammar import parsed
from perdure.client.single_order import Alone, SingleOrder
from perdure.errors import InvalidInput
from perdure.kernel.names import near
from perdure.kernel.payload import encode
from perdure.kernel.plain import shown
from perdure.kernel.process import FINAL, Status
from perdure.kernel.transition import Sender
from perdure.kernel.worker import Pair

if TYPE_CHECKING:
    from perdure.authoring.registry import Registry

Command = Decision | Alone
"""What a process is given: a decision of the kernel, or more than one."""


class Means(Struct, frozen=True):
    """What commands are made with: the ``registry``, chance, and what live workers host (None if it counts not)."""

    registry: Registry
    random: Callable[[], float]
    hosted: Collection[Pair] | None = None


Commanding = Callable[[OperationPlan, Sender, Means], Command]


class OperationVerb(Struct, frozen=True):
    """A verb: the command of it, the settings that it ``needs``, those that it ``takes``, and whether all ends with it.

    After a verb that ``ends`` or pauses a process nothing goes on that could fail again. What has ended in one of the
    statuses that it ``reopens`` runs again.
    """

    command: Commanding
    needs: frozenset[str] = frozenset()
    takes: frozenset[str] = frozenset()
    ends: bool = False
    reopens: frozenset[Status] = frozenset()


def _repair(plan: OperationPlan, sender: Sender, means: Means) -> Command:
    return decision.repair(sender, *_call(plan))


def _call(plan: OperationPlan) -> tuple[str, bytes]:
    return validation.repair(plan.method, [] if plan.value is None else plan.value)


def _edit_input(plan: OperationPlan, sender: Sender, means: Means) -> Command:
    return decision.edit_input(sender, means.registry, _arguments(plan), restart=plan.restart)


def _arguments(plan: OperationPlan) -> Arguments:
    return validation.arguments(*([], plan.value) if isinstance(plan.value, dict) else (plan.value, {}))


def _remove(plan: OperationPlan, sender: Sender, means: Means) -> Command:
    """Removed by itself: its former runs may go before it, in transactions of their own."""

    def removed(order: SingleOrder) -> Awaitable[None]:
        return order.remove(force=plan.force, who=sender.who, why=sender.why, origin=sender.origin)

    return removed


def _cancel(plan: OperationPlan, sender: Sender, means: Means) -> Command:
    """Cancelled by itself: it is sent a message, by which its code hears of it."""
    return lambda order: order.cancel_once(sender)


def _move(plan: OperationPlan, sender: Sender, means: Means) -> Command:
    return decision.move(sender, validation.version(plan.value), None if plan.force else means.hosted)


def _set_priority(plan: OperationPlan, sender: Sender, means: Means) -> Command:
    return decision.set_priority(sender, checked_priority(plan.value))


def _set_deadline(plan: OperationPlan, sender: Sender, means: Means) -> Command:
    return decision.set_deadline(sender, deadline.set_to(plan.value))


_STEP = frozenset({"step"})
_VALUE = frozenset({"value"})
_FAILED = frozenset({Status.FAILED})
VERBS: Mapping[str, OperationVerb] = {
    "retry": OperationVerb(lambda plan, sender, means: decision.retry(sender), reopens=_FAILED),
    "restart": OperationVerb(lambda plan, sender, means: decision.restart(sender), reopens=FINAL),
    "restart-from": OperationVerb(
        lambda plan, sender, means: decision.restart_from(sender, plan.step), _STEP, reopens=FINAL
    ),
    "repair": OperationVerb(_repair, frozenset({"method"}), _VALUE),
    "set-result": OperationVerb(
        lambda plan, sender, means: decision.set_result(sender, plan.step, plan.value), _STEP, _VALUE, reopens=_FAILED
    ),
    "skip": OperationVerb(lambda plan, sender, means: decision.skip(sender, plan.step), _STEP, reopens=_FAILED),
    "edit-input": OperationVerb(_edit_input, _VALUE, frozenset({"restart"}), reopens=FINAL),
    "edit-fields": OperationVerb(
        lambda plan, sender, means: decision.edit_fields(sender, means.registry, validation.fields(plan.value)),
        _VALUE,
        ends=True,
    ),
    "edit-attributes": OperationVerb(
        lambda plan, sender, means: decision.edit_attributes(sender, validation.changed_attributes(plan.value)),
        _VALUE,
        ends=True,
    ),
    "hold": OperationVerb(lambda plan, sender, means: decision.hold(sender, means.random), ends=True),
    "resume": OperationVerb(lambda plan, sender, means: decision.resume(sender)),
    "move": OperationVerb(_move, _VALUE, frozenset({"force"})),
    "set-priority": OperationVerb(_set_priority, _VALUE, ends=True),
    "set-deadline": OperationVerb(_set_deadline, _VALUE, ends=True),
    "cancel": OperationVerb(_cancel, ends=True),
    "terminate": OperationVerb(lambda plan, sender, means: decision.terminate(sender), ends=True),
    "fail": OperationVerb(lambda plan, sender, means: decision.fail(sender), ends=True),
    "remove": OperationVerb(_remove, takes=frozenset({"force"}), ends=True),
}
"""What an operation can do to each process: as the verb of the same name does it to one."""
_EXAMPLES = {
    "step": "step='charge'", "method": "method='corrected'", "value": "value=['A-17', 1300]", "move": "value='2'",
    "set-priority": "value=1", "set-deadline": "value=3600, or 'none'",
}  # fmt: skip
_OF_A_VALUE: Mapping[str, Callable[[Any], object]] = {
    "move": validation.version,
    "set-priority": checked_priority,
    "set-deadline": deadline.set_to,
}
"""What raises InvalidInput for a value that does not fit the verb."""


def command_of(plan: OperationPlan, sender: Sender, means: Means) -> Command:
    """What each process of the plan is given."""
    if not plan.undoes:
        return VERBS[plan.verb].command(plan, sender, means)
    origin = origin_of(plan.undoes)
    if plan.undoes_verb == "edit-input":  # the former input lies in a run before the present one
        return lambda order: order.take_back_input(origin, sender)
    return decision.take_back(plan.undoes_verb, origin, sender, means.random, hosted=means.hosted)


def origin_of(operation: str) -> str:
    """What each command of an operation says about where it comes from."""
    return f"operation {operation}"


def asks_for_hosts(plan: OperationPlan) -> bool:
    """Whether it counts for a plan what live workers host."""
    return "move" in (plan.verb, plan.undoes_verb) and not plan.force


def ends(plan: OperationPlan) -> bool:
    """Whether nothing goes on after the command that could fail again."""
    return plan.verb == UNDO or VERBS[plan.verb].ends


def reopened(plan: OperationPlan) -> frozenset[Status]:
    """The statuses of what has ended, and runs again after the command."""
    return frozenset() if plan.verb == UNDO else VERBS[plan.verb].reopens


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
            example = _EXAMPLES.get(plan.verb) or _EXAMPLES[name]
            raise InvalidInput(f"the operation {plan.verb!r} needs a {name}: {example}.")
        if there and name not in verb.needs | verb.takes:
            raise InvalidInput(f"the operation {plan.verb!r} takes no {name}.")
    encode(plan.value, what=f"the value of the operation {plan.verb!r}")
    if plan.verb == "edit-input":
        _arguments(plan)
    if plan.verb == "repair":
        _call(plan)
    if plan.verb in _OF_A_VALUE:
        _OF_A_VALUE[plan.verb](plan.value)
    if plan.verb == "edit-fields" and not (plan.value and isinstance(plan.value, dict)):
        raise InvalidInput("the operation 'edit-fields' needs fields with their values: value={'balance': 120}.")
    if plan.verb == "edit-attributes":
        validation.changed_attributes(plan.value)


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
