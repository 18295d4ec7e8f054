"""The undoing of a workflow beside steps that are under way: each undo once, in order, with what was recorded."""

from __future__ import annotations

import asyncio

import pytest

from perdure.authoring.workflow import workflow
from tests.authoring.life import Life
from tests.authoring.test_saga import book, finish, look, refused, undos


@workflow
async def spoils_what_it_got() -> None:
    ticket = await book("a")
    ticket.append("scribble")
    raise ValueError("no")


def test_the_undo_gets_what_was_recorded_not_what_the_code_made_of_it() -> None:
    assert undos(finish(Life(spoils_what_it_got))) == [['["a",["ticket a"]]']]


@workflow
async def spoils(how: str) -> None:
    if how == "promised":
        ticket = await book(look("a"))
    else:
        ask = asyncio.ensure_future(book("a"))
        await look("b")
        ticket = ask.result()
    ticket.append(object())  # type: ignore[arg-type]
    raise ValueError("no")


@pytest.mark.parametrize("how", ["promised", "beside"])
def test_the_undo_gets_what_was_recorded_although_the_code_has_changed_it_before_the_turn_notes_the_end(
    how: str,
) -> None:
    life = Life(spoils, [how])
    life.turn(*[life.answer(ask) for ask in reversed(life.loop.open.values())])
    if how == "promised":
        life.finish_step("book")
    finish(life)
    assert undos(life) == [['["a",["ticket a"]]']]


@workflow
async def promised_beside() -> None:
    await book("a")
    await asyncio.gather(book(look("b")), refused("c"))


def test_what_waits_for_a_promise_does_not_begin_once_the_process_is_being_undone() -> None:
    life = Life(promised_beside)
    life.finish_step("book")
    life.finish_step("refused")
    assert undos(life) == [['["c",null]']]
    assert life.finish_step("look").asked == []
    finish(life)
    assert undos(life) == [['["c",null]'], ['["a",["ticket a"]]']]


@workflow
async def books_in_a_callback() -> None:
    await book("a")
    asyncio.ensure_future(look("b")).add_done_callback(lambda _: book("b"))
    raise ValueError("no")


def test_what_is_asked_for_in_the_middle_of_the_undoing_is_undone_too_and_each_undo_runs_once() -> None:
    life = Life(books_in_a_callback)
    life.finish_step("book")
    life.finish_step("look")
    life.finish_step("unbook", "undo/book:1")
    assert not life.loop.finished
    finish(life)
    assert undos(life) == [['["a",["ticket a"]]'], ['["b",["ticket b"]]']]
