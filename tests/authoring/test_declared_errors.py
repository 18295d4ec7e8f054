"""Errors that a step declares are caught in the workflow by their own classes, live and at replay."""

from __future__ import annotations

import builtins
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.errors import DefinitionError, HistoryMisfit, Permanent, StepError, StepTimeout
from perdure.kernel.declared_error import declared, rebuilt
from perdure.kernel.failure import Failure
from tests.authoring.life import Life, lived


class PaymentError(Exception):
    """What the bank may answer."""


class CardRefused(PaymentError):
    """An error whose own code needs more than is recorded."""

    currency = "EUR"

    def __new__(cls, text: str, cents: int) -> CardRefused:
        return super().__new__(cls, text, cents)

    def __init__(self, text: str, cents: int) -> None:
        super().__init__(text)
        self.cents = cents

    def __str__(self) -> str:
        return f"{self.args[0]} ({self.cents})"


class GatewayTimeout(TimeoutError):
    """An error that is a timeout too."""


class Gone(Permanent):
    """Another attempt cannot cure it."""


@dataclass(frozen=True)
class Sold(LookupError):
    """A dataclass, which compares, hashes and shows itself by what it was made of."""

    what: str


@step(raises=(PaymentError, CardRefused, GatewayTimeout, Gone, Sold, KeyError))
async def charge(kind: str) -> str:
    if kind == "refused":
        raise CardRefused("no money", 1299)
    if kind == "late":
        raise GatewayTimeout("no answer")
    if kind == "gone":
        raise Gone("the shop is closed")
    if kind == "sold":
        raise Sold("a lamp")
    if kind == "key":
        raise KeyError("A-17")
    if kind == "strange":
        raise ValueError("not declared")
    return "paid"


@workflow(name="declared/order")
async def order(kind: str) -> str:
    try:
        return await charge(kind)
    except (CardRefused, GatewayTimeout, Gone, Sold, KeyError) as error:
        step = error.step if isinstance(error, StepError) else "no step"
        return f"{type(error).__name__} of {step}: {error}"
    except StepError as error:
        return f"StepError: {error.type}"


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("refused", "CardRefused of charge: no money (1299)"),
        ("late", "GatewayTimeout of charge: no answer"),
        ("gone", "Gone of charge: the shop is closed"),
        ("sold", "Sold of charge: a lamp"),
        ("key", "KeyError of charge: 'A-17'"),
        ("strange", "StepError: ValueError"),
    ],
)
def test_a_declared_error_is_caught_by_its_class_with_its_text_and_replays(kind: str, outcome: str) -> None:
    assert lived(order, kind, seeds=3) == {f'"{outcome}"'}


def test_an_error_is_also_caught_as_the_nearest_declared_class_above_its_own() -> None:
    class Overdrawn(PaymentError):
        """Declared by nobody."""

    @step(name="pay", raises=PaymentError)
    async def pay() -> None:
        raise Overdrawn("by 12.99")

    @workflow(name="declared/nearest")
    async def buy() -> str:
        try:
            await pay()
        except PaymentError as error:
            return f"{type(error).__name__} of type {getattr(error, 'type', None)}: {error}"
        return "paid"

    assert lived(buy, seeds=1) == {'"PaymentError of type Overdrawn: by 12.99"'}


def test_what_nobody_catches_ends_the_process_with_its_own_class_and_tells_of_the_step() -> None:
    @workflow(name="declared/uncaught")
    async def buy() -> str:
        return await charge("refused")

    life = Life(buy)
    assert life.finish_step("charge").outcome == "CardRefused: no money (1299)"
    error = life.loop.failure()
    assert error is not None
    told = Failure.of(error)
    assert (told.type, told.message) == ("CardRefused", "no money (1299)")
    assert "step 'charge' failed, tried once: CardRefused: no money (1299)" in told.trace


def test_other_attributes_are_not_recorded_and_the_error_says_so() -> None:
    error = charge.failure(CardRefused("no money", 1), 2).as_step_error("charge", charge.raises)
    assert isinstance(error, CardRefused)
    assert (error.type, error.attempts, error.currency) == ("CardRefused", 2, "EUR")
    with pytest.raises(AttributeError, match=r"CardRefused\.cents was not recorded.*return it as its result"):
        _ = error.cents
    assert repr(error) == "CardRefused('no money (1)')"
    assert "no money (1)" in "".join(traceback.format_exception(error))


def test_a_frozen_dataclass_is_rebuilt_without_its_own_code() -> None:
    error = charge.failure(Sold("a lamp"), 1).as_step_error("charge", charge.raises)
    assert isinstance(error, Sold)
    assert hash(error) == hash(error)
    assert error != Sold("a lamp")
    assert repr(error).startswith("Sold(")


def test_a_timeout_stays_a_step_timeout_whatever_is_declared() -> None:
    for classes in (TimeoutError, OSError, GatewayTimeout):
        raises = declared(classes, "x")
        error = Failure.of(GatewayTimeout("late"), raises=raises).as_step_error("x", raises)
        assert isinstance(error, StepTimeout)
        assert isinstance(error, classes)


def test_what_was_recorded_before_a_class_was_declared_replays_as_it_did() -> None:
    recorded = Failure.of(CardRefused("no money", 1)).as_step_error("charge", charge.raises)
    assert type(recorded) is StepError


def test_a_class_that_is_declared_no_more_is_a_plain_step_error() -> None:
    recorded = charge.failure(CardRefused("no money", 1), 1)
    assert type(recorded.as_step_error("charge")) is StepError


class Picky(Exception):
    """A class of which none can be derived without a word."""

    def __init_subclass__(cls, word: str) -> None: ...


@pytest.mark.parametrize(
    ("classes", "text"),
    [
        ("CardRefused", "has raises='CardRefused'. Give an error class"),
        (int, "Give an error class"),
        (KeyboardInterrupt, "Give an error class"),
        (StepError, "which Perdure itself raises"),
        (HistoryMisfit, "which Perdure itself raises"),
        (StopIteration, "cannot be given to a workflow"),
        (ExceptionGroup, "cannot be given to a workflow"),
        (Picky, "cannot be given to a workflow"),
        ((CardRefused, type("CardRefused", (Exception,), {})), "raises two classes called 'CardRefused'"),
    ],
)
def test_what_cannot_be_declared_is_refused_when_the_step_is_defined(classes: Any, text: str) -> None:
    async def pay() -> None: ...

    with pytest.raises(DefinitionError) as caught:
        step(raises=classes)(pay)
    assert text in str(caught.value)


def test_every_builtin_error_can_be_declared_but_those_that_steer_iteration() -> None:
    for one in _below(Exception):
        if not issubclass(one, StopIteration | StopAsyncIteration | BaseExceptionGroup):
            error = rebuilt(StepError, one)("text")
            assert isinstance(error, one)
            assert str(error) == "text"


def _below(kind: type[Exception]) -> Sequence[type[Exception]]:
    own = [one for one in kind.__subclasses__() if getattr(builtins, one.__name__, None) is one]
    return [*own, *(below for one in own for below in _below(one))]
