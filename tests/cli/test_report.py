"""What ``show`` and its neighbours tell of parents, tracebacks, families and sagas, on both stores."""

from __future__ import annotations

import asyncio

import pytest

from perdure import Engine, ProcessFailed, Retry, Search, step, workflow
from tests.cli import till
from tests.cli.conftest import PACE, Working
from tests.cli.terminal import Terminal


async def refused(engine: Engine) -> None:
    """One whose step has failed for good."""
    with pytest.raises(ProcessFailed):
        await (await engine.start(till.refusal.options(key="R-1"), "no bread")).result(10)


def test_show_and_the_full_history_hold_the_traceback_of_the_step(terminal: Terminal, working: Working) -> None:
    working(refused)
    said = terminal("show", "R-1")
    assert said.has("traceback of step refuse") and said.has("traceback of the process")
    assert said.has("File", "till.py", "in refuse") and said.has("ValueError: no bread")
    assert "till.py" not in terminal("history", "R-1").out
    assert terminal("history", "R-1", "--full").has("File", "till.py", "in refuse")


def test_a_process_that_goes_well_shows_no_traceback(terminal: Terminal, working: Working) -> None:
    async def sell(engine: Engine) -> None:
        await (await engine.start(till.sale.options(key="A-1"), "A-1")).result(10)

    working(sell)
    assert "traceback" not in terminal("show", "A-1").out


@workflow
async def child_to_show(name: str) -> str:
    return name


@workflow
async def parent_to_show(name: str) -> str:
    return await child_to_show.child(name)


def parent_and_child(url: str) -> tuple[str, str]:
    """The ids of a process and of the child that it has started."""

    async def start() -> tuple[str, str]:
        async with Engine(url, work=True, workflows=[parent_to_show, child_to_show], options=PACE) as engine:
            handle = await engine.start(parent_to_show.options(key="P-1"), "Ann")
            await handle.result(10)
            [child] = await engine.list(Search(kind="child_to_show"))
            return handle.id, child.id

    return asyncio.run(start())


def test_show_of_a_child_names_its_parent(terminal: Terminal) -> None:
    parent, child = parent_and_child(terminal.url)
    assert terminal("show", child).has(f"parent parent_to_show P-1 {parent}")
    told = terminal("show", child, "--json").json["parent"]
    assert told == {"id": parent, "kind": "parent_to_show", "key": "P-1"}
    assert not terminal("show", parent).has("parent ", parent)
    assert terminal("show", parent, "--json").json["parent"] is None


def test_ps_of_roots_leaves_out_children_and_counts_without_them(terminal: Terminal) -> None:
    parent, child = parent_and_child(terminal.url)
    assert [row["id"] for row in terminal("ps", "--roots", "--json").json] == [parent]
    assert {row["id"] for row in terminal("ps", "--json").json} == {parent, child}
    said = terminal("ps", "--roots")
    assert "child_to_show" not in said.out
    assert said.has("kind completed") and said.has("parent_to_show 1")


@step
async def give_back_to_show(what: str) -> None: ...


@step(undo=give_back_to_show)
async def book_to_show(what: str) -> str:
    return what


@step(retry=Retry.NONE)
async def board_to_show() -> None:
    raise ValueError("it has gone")


@workflow
async def trip_to_show(booked: bool) -> None:
    if booked:
        await book_to_show("seat")
    await board_to_show()


def failed_trip(url: str, *, booked: bool) -> str:
    """A trip that has failed, and has taken back what it had booked."""

    async def fail() -> str:
        async with Engine(url, work=True, workflows=[trip_to_show], options=PACE) as engine:
            handle = await engine.start(trip_to_show, booked)
            with pytest.raises(ProcessFailed):
                await handle.result(10)
            return handle.id

    return asyncio.run(fail())


@pytest.mark.parametrize(("booked", "verb"), [(True, "restart"), (False, "retry")])
def test_show_names_the_command_that_a_failed_saga_accepts(terminal: Terminal, booked: bool, verb: str) -> None:
    id = failed_trip(terminal.url, booked=booked)
    other = {"restart": "retry", "retry": "restart"}[verb]
    said = terminal("show", id)
    assert said.has("advice ", f"`perdure {verb} {id}`") and f"perdure {other} " not in said.out
    assert terminal("show", id, "--json").json["advice"].count(f"perdure {verb} {id}") == 1
    assert terminal(verb, id).code == 0
