"""What a newer Perdure or another hand has left in a row: it is shown as unknown, and hides no other row."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable

import asyncpg
import pytest

from perdure import Engine
from perdure.authoring.workflow import Workflow
from perdure.kernel.names import id_bytes
from tests.cli import till
from tests.cli.conftest import Working
from tests.cli.terminal import Terminal
from tests.runtime.test_damaged_rows import damage
from tests.store.damage import POSTGRES, SQLITE, named

NEWER = (
    "ALTER TYPE perdure.status ADD VALUE 'paused' AFTER 'broken'",
    "UPDATE perdure.process SET status = 'paused', reminder = true WHERE key = 'odd'",
)


def waiting(working: Working, *keys: str, what: Workflow[[str], str] = till.approval) -> list[str]:
    """Start a process for each key, which waits for a signal; their ids."""

    async def start(engine: Engine) -> list[str]:
        ids = [(await engine.start(what.options(key=key), key)).id for key in keys]
        while {view.mover for view in await engine.list()} != {"message"}:
            await asyncio.sleep(0.01)
        return ids

    ids: list[str] = working(start)
    return ids


def sent(working: Working, ids: Iterable[str]) -> None:
    """Send a signal that nobody waits for to each."""

    async def send(engine: Engine) -> None:
        for id in ids:
            await engine.process(id).signal("no", "x")

    working(send)


async def a_newer_status(url: str, id: str) -> str:
    """Give a row a status that this release does not know; how it is called."""
    if url.startswith("sqlite"):
        raw = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        raw.execute("PRAGMA ignore_check_constraints = ON")
        raw.execute("UPDATE process SET status = 17, reminder = 1 WHERE id = ?", (id_bytes(id),))
        raw.close()
        return "unknown (17)"
    outside = await asyncpg.connect(url)
    for statement in NEWER:
        await outside.execute(statement)
    await outside.close()
    return "unknown (paused)"


def test_a_status_of_a_newer_release_is_shown_as_unknown_and_hides_no_other_process(
    terminal: Terminal, working: Working
) -> None:
    [odd, _] = waiting(working, "odd", "plain")
    shown = asyncio.run(a_newer_status(terminal.url, odd))
    said = terminal("ps")
    assert (said.code, said.err) == (0, "")
    assert said.has("odd approval", shown) and said.has("plain approval running")
    assert said.has("kind running", shown), "it is counted too"
    assert said.has("odd", "does not know")
    whole = terminal("show", odd)
    assert (
        whole.code == 0 and whole.has(shown) and whole.has("worker: it is in a status that this Perdure does not know")
    )
    assert terminal("tree", odd).has(shown)
    assert terminal("history", odd).code == 0
    [status] = [one["status"] for one in terminal("ps", "--json").json if one["id"] == odd]
    assert shown == f"unknown ({status})"
    assert terminal("show", odd, "--json").json["status"] == status
    assert terminal("tree", odd, "--json").json["status"] == status


def one_of_each_column(terminal: Terminal, table: str) -> list[str]:
    """A bad value for each column of a table."""
    values = named(SQLITE if terminal.url.startswith("sqlite") else POSTGRES, table)
    return list({what.partition(":")[0]: what for what in reversed(values)}.values())


@pytest.mark.parametrize("table", ["process", "event", "message"])
def test_no_bad_value_in_any_column_keeps_a_verb_from_showing_it_and_its_neighbours(
    terminal: Terminal, working: Working, table: str
) -> None:
    values = one_of_each_column(terminal, table)
    ids = dict(zip(values, waiting(working, *values, what=till.noted_approval), strict=True))
    if table == "message":
        sent(working, ids.values())
    bad = {what: id for what, id in ids.items() if asyncio.run(damage(terminal.url, id, table, what))}
    for words in (("ps", "--limit", "1000"), ("ps", "--wide", "--json", "--limit", "1000"), ("queue", "ls")):
        assert terminal(*words).code == 0, words
    assert len(terminal("ps", "--json", "--limit", "1000").json) == len(ids)
    for what, id in bad.items():
        verb = "history" if table == "event" else "show"  # both read them, and show does so with the row and the inbox
        said = terminal(verb, id)
        assert (said.code, said.err) == (0, ""), (what, verb)
    assert bad


def test_a_worker_with_bad_values_keeps_nobody_from_being_shown(terminal: Terminal, working: Working) -> None:
    values = one_of_each_column(terminal, "worker")
    [plain] = waiting(working, "plain")

    async def worker() -> str:
        async with Engine(terminal.url) as client:
            [one, *_] = await client.store.workers(ended=True)
            return str(one.id.hex())

    id = asyncio.run(worker())
    for what in values:
        asyncio.run(damage(terminal.url, id, "worker", what))
        for words in (("ps",), ("show", plain)):
            assert terminal(*words).code == 0, (what, words)
