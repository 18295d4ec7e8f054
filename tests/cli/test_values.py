"""What an operator sees of published values, on both stores: ``values``, and a signal that comes with a start."""

from __future__ import annotations

import json

from perdure import Engine
from tests.cli import till
from tests.cli.conftest import Working
from tests.cli.terminal import Program, Terminal


async def counted(engine: Engine) -> None:
    """One that has published two totals and a note, and has ended with a third total."""
    handle = await engine.start(till.counting.options(key="C-1", signal=("price", 5)), [3, 4])
    await handle.signal("price")
    await handle.result(10)


def test_values_prints_what_a_process_has_published(terminal: Terminal, working: Working) -> None:
    working(counted)
    said = terminal("values", "C-1", "total")
    assert said.code == 0
    assert [line.split()[1] for line in said.out.splitlines()] == ["3", "7", "12"]
    assert said.out.startswith("1  3\n2  7\n")
    rest = terminal("values", "C-1", "total", "--after", "2", "--follow")
    assert [line.split()[1] for line in rest.out.splitlines()] == ["12"]
    every = [json.loads(line) for line in terminal("values", "C-1", "--json").out.splitlines()]
    assert [(one["run"], one["name"], one["value"]) for one in every] == [
        (1, "total", 3),
        (1, "total", 7),
        (1, "note", {"open": True}),
        (1, "total", 12),
    ]
    assert terminal("values", "C-1").has("3 note", '{"open":true}')
    assert terminal("values", "C-1", "other").out == ""


def test_a_refusal_of_values_says_what_to_do(terminal: Terminal, working: Working) -> None:
    working(counted)
    refused = terminal("values", "C-1", "--run", "9")
    assert (refused.code, refused.err) == (
        2,
        "perdure: there is no run 9: the process is in run 1. Leave it out, or correct it.\n",
    )
    assert terminal("values", "C-9").code == 1


def test_values_are_followed_until_the_process_has_ended(terminal: Terminal, programs: list[Program]) -> None:
    programs.append(terminal.program("worker", "tests.cli.till"))
    programs[0].line_with(" hosts ")
    started = terminal("start", "tests.cli.till:counting", "[1]", "--key", "C-1")
    assert started.code == 0
    programs.append(terminal.program("values", "C-1", "total", "--follow"))
    programs[1].line_with("1  1")
    again = terminal("start", "tests.cli.till:counting", "[1]", "--key", "C-1", "--signal", "price=10")
    assert again.has("already exists: counting C-1", "; sent")
    programs[1].line_with("11")
    told = terminal("start", "tests.cli.till:counting", "[1]", "--key", "C-1", "--signal", "price", "--json").json
    assert (told["created"], told["signal"]) == (False, "delivered")
    assert programs[1].wait() == 0
