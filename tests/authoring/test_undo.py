"""Undos where they are declared: what may undo what, and what it is called with."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.authoring.step import Step, step
from perdure.authoring.workflow import workflow
from perdure.errors import DefinitionError
from tests.authoring.life import Life
from tests.authoring.test_saga import book, finish, undos


@step
def wants_cents(cents: int) -> None:
    """An undo that no booking has the arguments for."""


@step
def wants_number(what: int) -> None:
    """An undo of another type."""


@step
def wants_result(result: str) -> None:
    """An undo that cannot stand an unknown end."""


@pytest.mark.parametrize(
    ("undo", "told"),
    [
        (lambda what: None, "Mark that function with @step"),
        (wants_cents, "has no parameter 'cents'"),
        (wants_number, "write `what: str`"),
        (wants_result, r"write `result: list\[str\] \| None` there \(None says"),
    ],
)
def test_an_undo_that_could_not_be_called_is_refused_where_it_is_named(undo: Any, told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        Step(book.function, undo=undo)


def test_an_undo_gets_the_arguments_that_it_names_and_defaults_where_they_were_left_out() -> None:
    @step
    def back(cents: int) -> None: ...

    @step(undo=back)
    def forth(order: str, cents: int = 7) -> None: ...

    @workflow
    async def gives() -> None:
        await forth("A")
        await forth("B", cents=8)
        raise ValueError("no")

    assert undos(finish(Life(gives))) == [["[8]"], ["[7]"]]
