"""Steps are replaced by functions that fit them, for as long as the test's engine is open."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from perdure import ProcessFailed, testing
from perdure.errors import DefinitionError
from tests.testing.bakery import bake, book, charge, delivery, grind, kitchen, pay, purchase, refund, regret, remind


async def test_an_async_function_runs_in_the_place_of_a_step() -> None:
    async def fake(order: str, cents: int) -> str:
        return f"{order} for {cents}"

    async with testing.engine(steps={charge: fake}) as engine:
        assert await (await engine.start(purchase, "A-1", 5)).result(timeout=10) == "A-1 for 5"


async def test_an_ordinary_function_runs_in_a_thread_in_the_place_of_an_async_step() -> None:
    threads = []

    def fake(order: str, cents: int) -> str:
        threads.append(threading.current_thread())
        return order

    async with testing.engine(steps={charge: fake}) as engine:
        assert await (await engine.start(purchase, "A-1", 5)).result(timeout=10) == "A-1"
    assert threads != [threading.main_thread()]


async def test_steps_of_every_kind_are_replaced() -> None:
    async def baked(loaf: str) -> str:
        return f"{loaf}, not baked"

    fakes = {grind: lambda grams: grams + 1, book: lambda order: "nowhere", bake: baked}
    async with testing.engine(steps=fakes) as engine:
        assert await (await engine.start(kitchen)).result(timeout=10) == (501, "nowhere", "rye, not baked")


async def test_what_is_not_replaced_runs_as_it_is() -> None:
    async with testing.engine(steps={grind: lambda grams: grams}) as engine:
        result = await (await engine.start(kitchen)).result(timeout=10)
        assert result == (500, "booked with a connection", "real rye")


async def test_an_undo_is_replaced_too() -> None:
    undone = []
    async with testing.engine(steps={refund: lambda order, cents: undone.append(order)}) as engine:
        with pytest.raises(ProcessFailed, match="changed its mind"):
            await (await engine.start(regret, "A-7")).result(timeout=10)
    assert undone == ["A-7"]


async def test_a_step_is_itself_again_when_the_engine_is_closed() -> None:
    async with testing.engine(steps={remind: lambda order: "a fake"}):
        assert remind("A-1") == "a fake"
    assert remind("A-1") == "dear A-1"
    async with testing.engine() as engine:
        assert await (await engine.start(delivery, "A-1")).result(timeout=10) == "dear A-1"


class Callee:
    """An object that is called like a step, and awaited."""

    async def __call__(self, order: str, cents: int) -> str:
        return "from an object"


async def test_an_object_whose_call_is_async_may_be_a_fake() -> None:
    async with testing.engine(steps={charge: Callee()}) as engine:
        assert await (await engine.start(purchase, "A-1", 5)).result(timeout=10) == "from an object"


@pytest.mark.parametrize(
    "fake",
    [
        lambda: "nothing",
        lambda order: "too few",
        lambda order, cents, more: "too many",
        lambda order, amount: "another name",
        lambda order, cents, /: "not by name",
        lambda *, order, cents: "not by place",
    ],
)
async def test_a_fake_that_cannot_be_called_like_its_step_is_refused(fake: Callable[..., Any]) -> None:
    with pytest.raises(DefinitionError, match=r"<step .*charge> is called as \(order: .*parameters of the step"):
        async with testing.engine(steps={charge: fake}):
            pass


@pytest.mark.parametrize("fake", [lambda *args, **kwargs: "", lambda order, cents, more=1: ""])
async def test_a_fake_that_takes_more_than_its_step_fits(fake: Callable[..., Any]) -> None:
    async with testing.engine(steps={charge: fake}) as engine:
        assert await (await engine.start(purchase, "A-1", 5)).result(timeout=10) == ""


@pytest.mark.parametrize(("step", "fake"), [(charge, pay), (charge, "a text"), (len, len)])
async def test_only_steps_are_replaced_and_only_by_plain_functions(step: Any, fake: Any) -> None:
    with pytest.raises(DefinitionError, match=r"not a step|plain function"):
        async with testing.engine(steps={step: fake}):
            pass


async def test_a_step_is_replaced_by_one_engine_at_a_time() -> None:
    async with testing.engine(steps={remind: lambda order: "first"}):
        with pytest.raises(DefinitionError, match="by another test engine already"):
            async with testing.engine(steps={remind: lambda order: "second"}):
                pass
        assert remind("A-1") == "first"
