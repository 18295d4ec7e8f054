"""Fakes: functions that run in the place of steps while a test is under way, each checked to fit its step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from inspect import Parameter, Signature, iscoroutinefunction, signature
from typing import Any, TypeAlias

from perdure.authoring.step import Step
from perdure.errors import DefinitionError

Fakes: TypeAlias = Mapping[Step[..., Any], Callable[..., Any]]
"""For each step the function that runs in its place: an ordinary one, in a thread, or an ``async def``."""

_replaced: set[Step[..., Any]] = set()


@contextmanager
def replaced(fakes: Fakes) -> Iterator[None]:
    """Run these functions in the place of those steps, everywhere in this program; raises DefinitionError.

    Retries, timeouts, queues and undos of a step stay as they are; a hard step is not hard meanwhile, and one with a
    transaction has none.
    """
    with ExitStack() as stack:
        for step, fake in fakes.items():
            stack.enter_context(_replaced_by(step, fake))
        yield


@contextmanager
def _replaced_by(step: Step[..., Any], fake: Callable[..., Any]) -> Iterator[None]:
    check(step, fake)
    if step in _replaced:
        raise DefinitionError(f"{step} is replaced by another test engine already. Close that one first.")
    kept = {name: vars(step)[name] for name in ("function", "is_async", "hard", "transaction", "prepared")}
    _replaced.add(step)
    vars(step)["function"] = fake
    step.is_async = iscoroutinefunction(fake) or iscoroutinefunction(getattr(fake, "__call__", None))  # noqa: B004
    step.hard, step.transaction = None, False
    step.prepared = step.away or step.at_most_once or step.breaker is not None
    try:
        yield
    finally:
        vars(step).update(kept)
        _replaced.discard(step)


def check(step: Any, fake: Any) -> None:
    """Raise DefinitionError unless ``fake`` can be called in every way in which the step can."""
    if not isinstance(step, Step):
        raise DefinitionError(f"{step!r:.200} is not a step. Give steps={{step: function}}.")
    if isinstance(fake, Step) or not callable(fake):
        raise DefinitionError(f"{step} is to be replaced by {fake!r:.200}. Give a plain function or an `async def`.")
    wanted, given = signature(step.function), signature(fake)
    for args, kwargs in _calls(wanted):
        try:
            given.bind(*args, **kwargs)
        except TypeError as error:
            raise DefinitionError(
                f"{step} is called as {wanted}, but its replacement takes {given}: {error}. "
                "Give it the parameters of the step."
            ) from None


def _calls(wanted: Signature) -> Iterator[tuple[list[str], dict[str, str]]]:
    """A call with everything by place, one with everything by name, and one with only what must be given."""
    every = list(wanted.parameters.values())
    needed = [one for one in every if one.default is Parameter.empty]
    yield _call(every, by_name=(Parameter.KEYWORD_ONLY,))
    yield _call(every, by_name=(Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD))
    yield _call(needed, by_name=(Parameter.KEYWORD_ONLY,))


def _call(parameters: list[Parameter], *, by_name: tuple[Any, ...]) -> tuple[list[str], dict[str, str]]:
    named = {one.name: one.name for one in parameters if one.kind in by_name}
    return [one.name for one in parameters if one.name not in named], named
