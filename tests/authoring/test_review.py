"""What is most likely a mistake in workflow code is told, with file and line, when the workflow is defined."""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from collections.abc import Callable, Set
from os.path import isdir
from pathlib import Path
from typing import Any

from perdure.authoring.registry import Registry
from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow

log = logging.getLogger("shop")


class CardRefused(Exception):
    """What the bank answers."""


class Stolen(CardRefused):
    """A kind of it."""


@step(name="review.charge")
async def charge(cents: int) -> str:
    raise CardRefused(str(cents))


@step(name="review.pay", raises=CardRefused)
async def pay(cents: int) -> str:
    raise CardRefused(str(cents))


@step(name="review.ship")
def ship(parcel: str) -> None: ...


@workflow(name="review/child")
async def child(cents: int) -> str:
    return await pay(cents)


def parsed(text: str) -> int:
    if not text.isdecimal():
        raise CardRefused(text)
    return int(text)


def told(function: Callable[..., Any]) -> list[str]:
    """The warnings of a definition, each with its line below the first of the function."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        workflow(name=f"review/{function.__name__}")(function)
    first = function.__code__.co_firstlineno
    assert all(one.filename == __file__ and one.category is RuntimeWarning for one in caught)
    return [f"{one.lineno - first}: {one.message}" for one in caught]


def test_a_step_that_is_called_and_not_awaited_is_told_with_its_line() -> None:
    async def forgets(name: str) -> None:
        await charge(1)
        ship(name)
        charge.options(timeout=3)(2)
        receipt = charge(3)  # noqa: F841

    assert told(forgets) == [
        "2: step 'review.ship' is called and never awaited: the workflow goes on without its result, and its error is "
        "lost. Write `await ship(name)`.",
        "3: step 'review.charge' is called and never awaited: the workflow goes on without its result, and its error "
        "is lost. Write `await charge.options(timeout=3)(2)`.",
        "4: step 'review.charge' is called and never awaited: the workflow goes on without its result, and its error "
        "is lost. Write `await charge(3)`.",
    ]


def test_what_is_awaited_later_or_left_on_purpose_is_not_told() -> None:
    async def begins(name: str) -> None:
        first = charge(1)
        _ = charge(2)
        both = [charge(3), charge(4)]
        child.child(5)  # which is asked to end with its parent
        await asyncio.gather(first, *both)

    assert told(begins) == []


def test_an_except_that_names_the_error_of_a_step_is_told_unless_the_step_declares_it() -> None:
    async def catches() -> str:
        try:
            return await charge(1)
        except CardRefused:
            return "refused"

    async def catches_what_is_declared() -> str:
        try:
            return await pay(1)
        except CardRefused:
            return "refused"

    async def catches_less() -> str:
        try:
            return await pay(1)
        except Stolen:
            return "stolen"

    (line,) = told(catches)
    assert line.startswith("3: `except CardRefused` is never reached: the error of a step arrives as StepError. ")
    assert line.endswith("with @step(raises=CardRefused); or catch StepError and look at its `type`.")
    assert told(catches_what_is_declared) == []
    assert "`except Stolen` is never reached" in told(catches_less)[0]


def test_an_except_around_a_child_is_told_what_its_error_arrives_as() -> None:
    async def parent() -> str:
        try:
            return await child.child(1)
        except CardRefused:
            return "refused"

    assert "the error of a child arrives as ProcessFailed" in told(parent)[0]


def test_an_except_between_other_calls_is_told_only_if_none_of_them_can_raise_it() -> None:
    async def between_harmless_calls(text: str) -> str:
        try:
            log.info("%s", ", ".join(text))
            done = await asyncio.gather(charge(len("one")), charge(2))
            return str(done)
        except (Stolen, CardRefused):
            return "refused"

    async def parses(text: str) -> int:
        try:
            await charge(1)
            return parsed(text)
        except CardRefused:
            return 0

    async def raises_by_itself(text: str) -> str:
        try:
            await charge(1)
            raise CardRefused(text)
        except CardRefused:
            return "refused"

    async def calls_what_nobody_knows(till: Any) -> str:
        try:
            await charge(1)
            return str(till.close())
        except CardRefused:
            return "refused"

    assert [line[:22] for line in told(between_harmless_calls)] == ["5: `except Stolen` is ", "5: `except CardRefused"]
    assert told(parses) == told(raises_by_itself) == told(calls_what_nobody_knows) == []


def test_a_builtin_error_is_told_only_where_nothing_but_steps_is_awaited() -> None:
    async def only_the_step() -> str:
        try:
            receipt = await charge(1)
        except ConnectionError:
            return "offline"
        return receipt

    async def other_things_too(text: str) -> float:
        try:
            await charge(1)
            return 1 / int(text)
        except (ZeroDivisionError, LookupError):
            return 0

    async def what_may_arrive() -> str:
        try:
            return await charge(1)
        except TimeoutError:
            return "late"
        except ValueError:
            return "bad argument"
        except Exception:
            return "failed"

    assert "`except ConnectionError` is never reached" in told(only_the_step)[0]
    assert told(other_things_too) == told(what_may_arrive) == []


def test_a_loop_over_a_set_of_texts_that_awaits_is_told_and_one_in_an_order_is_not() -> None:
    async def in_any_order(people: set[str], others: frozenset[bytes], third: Set[str]) -> list[str]:
        for one in people:
            ship.options(timeout=3)
            await charge(len(one))
        for each in {"a", "b"}:
            if each:
                await charge(1)
        found = [await charge(len(other)) for other in others]
        found += await asyncio.gather(*(charge(len(one)) for one in people))
        return found + [await charge(len(one)) for one in third if one]

    async def in_an_order(people: set[str], numbers: set[int], third: set[str]) -> int:
        for one in sorted(people):
            await charge(len(one))
        for number in numbers | {1, 2}:
            await charge(number)
        for pending in {charge(1), charge(2)}:
            await pending
        third = dict.fromkeys(sorted(third))  # type: ignore[assignment]
        for name in third:
            await charge(len(name))
        total = 0
        for one in people:
            total += len(one)
        return total + len(people) + sum(len(one) for one in people)

    assert [line[:55] for line in sorted(told(in_any_order))] == [
        "1: this loop takes the texts of the set people in anoth",
        "4: this loop takes the texts of the set {'a', 'b'} in a",
        "7: this loop takes the texts of the set others in anoth",
        "8: this loop takes the texts of the set people in anoth",
        "9: this loop takes the texts of the set third in anothe",
    ]
    assert told(in_an_order) == []


HERE = Path(__file__)


def test_a_look_at_files_is_told() -> None:
    async def looks(name: str) -> list[Any]:
        found = [os.path.exists(name), Path(name).is_file(), (HERE.parent / name).exists(), HERE.stat(), isdir(name)]
        return [*found, HERE.name, Path(name).suffix, os.path.join(name, "x")]

    lines = told(looks)
    assert sorted(line.partition("()")[0] for line in lines) == [
        "1: Path.exists",
        "1: Path.is_file",
        "1: Path.stat",
        "1: os.path.exists",
        "1: os.path.isdir",
    ]
    assert lines[0].endswith("on whatever machine that is. Move it into a function marked @step.")


async def _tries_again() -> None:
    try:
        await charge(1)
    except CardRefused:
        await receive("again")


def test_the_users_own_functions_that_a_workflow_calls_are_looked_at_too_and_told_once() -> None:
    async def one() -> None:
        await _tries_again()

    async def two() -> None:
        await _tries_again()

    assert len(told(one)) == 1
    assert told(two) == []


def test_what_is_defined_below_a_workflow_is_seen_when_it_is_registered() -> None:
    async def early() -> None:
        late(1)  # type: ignore[name-defined]  # noqa: F821

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        flow = workflow(name="review/early")(early)
        assert not caught
        early.__globals__["late"] = charge
        try:
            Registry(flow)
        finally:
            del early.__globals__["late"]
    assert "never awaited" in str(caught[0].message)


def test_code_whose_source_is_not_at_hand_is_not_looked_at(tmp_path: Path) -> None:
    made: dict[str, Any] = {"charge": charge}
    exec(compile("async def forgets():\n    charge(1)\n", str(tmp_path / "gone.py"), "exec"), made)  # noqa: S102
    assert told(made["forgets"]) == []
