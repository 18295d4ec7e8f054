"""A step's error may be of any class and say anything of itself: it is recorded, and its process goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.errors import ProcessBroken, StepError
from perdure.kernel.failure import Failure
from perdure.kernel.retry import Retry
from tests.runtime.conftest import LIMIT, Open


class Declined(StepError):
    """A class of the application's, which does not call the constructor of its base."""

    def __init__(self, code: int) -> None:
        self.code = code


class Elusive(StepError):
    """A class whose own properties raise."""

    def __init__(self) -> None:
        Exception.__init__(self, "elusive")

    step = type = failure = property(lambda self: 1 // 0)  # type: ignore[assignment]


def misused() -> StepError:
    return StepError("declined", step=fails, type=7, failure="none")  # type: ignore[arg-type]


ERRORS: dict[str, Callable[[], Exception]] = {
    "Declined": lambda: Declined(7),
    "Elusive": Elusive,
    "StepError": misused,
    "Empty": lambda: StepError.__new__(StepError),
}


@step(retry=Retry(attempts=2, first=0.0))
async def fails(which: str) -> None:
    raise ERRORS[which]()


@workflow
async def caught(which: str) -> tuple[str, int]:
    try:
        await fails(which)
    except StepError as error:
        return error.type, error.attempts
    return "no error", 0


@pytest.mark.parametrize("which", ERRORS)
async def test_an_error_derived_from_that_of_steps_is_recorded_whatever_it_lacks(opened: Open, which: str) -> None:
    engine, _ = await opened(work=True, workflows=[caught])
    name = type(ERRORS[which]()).__name__
    assert await (await engine.start(caught, which)).result(LIMIT) == (name, 2)


def test_what_a_failed_step_s_error_says_of_itself_is_recorded_if_it_is_a_text() -> None:
    failure = Failure.of(misused())
    assert (failure.step, failure.cause, failure.message) == ("", "", "declined")
    assert Failure.of(StepError("no", step="charge", type="Refused")).origin == ("charge", "Refused", "no")


class Asking(type):
    """Classes that cannot be asked which errors are theirs."""

    def __instancecheck__(cls, error: object) -> bool:
        raise LookupError("asked")


class Unasked(Exception, metaclass=Asking):
    """One of them."""


@step(retry=Retry(on=Unasked))
async def unplanned() -> None:
    raise ValueError("no")


@workflow
async def plans_nothing() -> None:
    await unplanned()


async def test_a_process_is_parked_if_nothing_can_be_planned_after_a_failed_attempt(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    engine, _ = await opened(work=True, workflows=[plans_nothing])
    with pytest.raises(ProcessBroken, match="LookupError: asked"):
        await (await engine.start(plans_nothing)).result(LIMIT)
    assert "cannot go on; please report it" in caplog.text
    assert engine.metrics()["in_hand"] == 0


class Refused(Exception):
    """A class with properties, named as what the engine says of a step's error."""

    step = type = attempts = failure = property(lambda self: "its own")


@step(retry=Retry.NONE, raises=Refused)
async def refuses() -> None:
    raise Refused("no")


@workflow
async def refused() -> list[object]:
    try:
        await refuses()
    except Refused as error:
        of = error.failure if isinstance(error, StepError) else None
        return [error.step, error.type, error.attempts, str(error), of.cause if isinstance(of, Failure) else None]
    return []


async def test_a_declared_class_may_have_properties_named_as_what_the_engine_says_of_an_error(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[refused])
    assert await (await engine.start(refused)).result(LIMIT) == ["refuses", "Refused", 1, "no", ""]
