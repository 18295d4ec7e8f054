"""A queue: where steps wait for a worker that serves it; each queued step is a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from weakref import ref

from msgspec import Raw, Struct, json, structs

from perdure.authoring.definitions import seconds
from perdure.clock import microseconds
from perdure.errors import DefinitionError, InvalidKey
from perdure.kernel.child import queue_kind
from perdure.kernel.names import check_name
from perdure.kernel.process import Process
from perdure.kernel.retry import PLAIN, Retry

if TYPE_CHECKING:
    from perdure.authoring.step import Step
    from perdure.turns.ask import Ask

LARGEST_COST = 1_000_000
"""What one step may cost of its queue's limits at most."""

_steps: dict[str, list[ref[Step[Any, Any]]]] = {}


def note(step: Step[Any, Any]) -> None:
    """Remember a step that has been defined, as long as it exists."""
    alive = [known for known in _steps.get(step.name, ()) if known() is not None]
    _steps[step.name] = [*alive, ref(step)]


def steps_named(name: str) -> list[Step[Any, Any]]:
    """The steps of that name in this program; if several have the same definition, only the one made last."""
    found = (step for known in _steps.get(name, ()) if (step := known()) is not None)
    return list({step.definition: step for step in found}.values())


def step_names() -> list[str]:
    """The names of all steps of this program."""
    return sorted(name for name in _steps if steps_named(name))


def queued_steps() -> list[Step[Any, Any]]:
    """Every queued step of this program."""
    return [step for name in _steps for step in steps_named(name) if step.away]


Accept: TypeAlias = Literal["current", "first"]
"""Whose answer counts: only that of the current attempt, or the first one of any attempt."""


class Routing(Struct, frozen=True):
    """Where and how a queued step waits. ``total`` is seconds from asking to end; ``label`` names one worker.

    No worker gets the step before ``delay`` seconds from the asking. ``share`` is on whose account it runs, ``cost``
    how much it takes of the queue's limits. ``total_force`` says whether the end of ``total`` ends a running attempt,
    or lets it finish. ``accept`` says whose answer counts.
    """

    queue: str
    priority: int = 4
    label: str = ""
    total: float | None = None
    share: str | None = None
    cost: int = 1
    delay: float | None = None
    total_force: bool = True
    accept: Accept = "current"


def routing(owner: str, own: Routing | None, **given: Any) -> Routing | None:
    """The routing that a step's settings ask for, where ``own`` is what it has already; raises DefinitionError."""
    given = {name: value for name, value in given.items() if value is not None}
    if own is None and "queue" not in given:
        if given:
            raise DefinitionError(f"{owner} has {', '.join(f'{name}=' for name in given)}: only a queue's. Add queue=.")
        return None
    try:
        for name in ("queue", "label", "share"):
            if name in given:
                check_name(given[name], f"the {name} of {owner}")
    except InvalidKey as error:
        raise DefinitionError(str(error)) from None
    _check_number(owner, "priority", given, 0, 9, "from 0 (first) to 9")
    _check_number(owner, "cost", given, 1, LARGEST_COST, f"from 1 to {LARGEST_COST:,}")
    for name in ("total", "delay"):
        if name in given:
            given[name] = seconds(name, given[name], owner)
    if not isinstance(given.get("total_force", True), bool):
        raise DefinitionError(f"{owner} has total_force={given['total_force']!r:.100}. Give True or False.")
    if given.get("accept", "current") not in ("current", "first"):
        raise DefinitionError(f"{owner} has accept={given['accept']!r:.100}. Give 'current' or 'first'.")
    route = Routing(**given) if own is None else structs.replace(own, **given)
    if route.total is None and not route.total_force:
        raise DefinitionError(f"{owner} has total_force=False and no total=. Add total=.")
    if route.total is not None and route.delay is not None and route.delay >= route.total:
        raise DefinitionError(
            f"{owner} has delay={route.delay:g} and total={route.total:g}. Make total= the longer one."
        )
    return route


def _check_number(owner: str, name: str, given: dict[str, Any], first: int, last: int, range: str) -> None:
    value = given.get(name, first)
    if type(value) is not int or not first <= value <= last:
        raise DefinitionError(f"{owner} has {name}={value!r:.100}. Give a whole number {range}.")


class Task(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a queued step's process is started with: the step, one idempotency key for all attempts, the arguments.

    ``retry`` and ``timeout`` are what the asking code set in place of the step's own policy. ``undoes`` is the key of
    the step that it undoes, if it is an undo. ``force`` is false if a running attempt may outlast the task's total
    time, ``first`` is true if the first answer of any attempt counts. ``definition`` tells steps of one name apart.
    ``once`` is whether it runs at most once, where the asking code says so in place of the step.
    """

    step: str
    key: str
    call: Raw
    retry: Mapping[str, Any] | None = None
    timeout: float | None = None
    undoes: str | None = None
    force: bool = True
    first: bool = False
    definition: str = ""
    once: bool | None = None


_OF_NEWER_RELEASES = ("backoffs", "offsets", "timeout_factor", "timeout_cap", "then")
"""Properties of Retry that a worker of an older release does not know."""


def task_process(step: Step[Any, Any], id: bytes, ask: Ask[Any], parent: Process, key: str, now: int) -> Process:
    """The row of a queued step."""
    route = step.routing
    assert route is not None
    numbers = step.retry.numbers()
    for name in _OF_NEWER_RELEASES:  # while nobody uses them, an older worker can take the task
        if numbers[name] == getattr(PLAIN, name):
            del numbers[name]
    task = Task(
        step.name,
        key,
        Raw(ask.raw),
        numbers if "retry" in step.set_here else None,
        step.timeout if "timeout" in step.set_here else None,
        ask.undoes,
        route.total_force,
        route.accept == "first",
        step.definition,
        step.at_most_once if "at_most_once" in step.set_here else None,
    )
    return Process(
        id,
        queue_kind(route.queue),
        None,
        json.encode(task),
        parent=parent.id,
        code=route.label,
        priority=route.priority,
        share=route.share,
        cost=route.cost,
        awaiting=f"step {step.name}",
        due_at=None if route.delay is None else now + microseconds(route.delay),
        deadline=None if route.total is None else now + microseconds(route.total),
    )


def with_numbers(retry: Retry, numbers: dict[str, Any] | None) -> Retry:
    """The retry that the asking code has set; which errors are retried, and after which wait, the step itself says.

    The numbers are those of a whole retry: what is not stored is as by default, not as the step itself has it.
    """
    if numbers is None:
        return retry
    return replace(retry, **{name: getattr(PLAIN, name) for name in _OF_NEWER_RELEASES} | numbers)


def check_classes(step: Step[Any, Any], own: Retry) -> None:
    """Raise DefinitionError if the retry that a queued step has at one place names other classes than its ``own``.

    Classes cannot be stored: its worker takes those of the definition, and ``permanent`` is of both.
    """
    if step.away and not step.at_most_once:
        plain: dict[str, tuple[object, ...]] = {
            "on": as_classes(PLAIN.on), "never": as_classes(step.permanent), "waits": PLAIN.waits,
        }  # fmt: skip
        for name, default in plain.items():
            if set(getattr(step.retry, name)) not in (set(default), set(getattr(own, name))):
                raise DefinitionError(
                    f"{step} is queued, and has a retry with {name}= of its own at one place. Its worker knows only "
                    f"that of the definition: write {name}= in @step(retry=...), or in that of a second step."
                )


def as_classes(classes: type[BaseException] | tuple[type[BaseException], ...]) -> tuple[type[BaseException], ...]:
    """Error classes as a tuple, of which one may have been given alone."""
    return classes if isinstance(classes, tuple) else (classes,)
