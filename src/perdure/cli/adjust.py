"""Adjusting processes at the terminal: another version of their code, another priority, another deadline."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from cyclopts import Parameter

from perdure.cli import text
from perdure.cli.commands import command_each, goes_on
from perdure.cli.options import DEFAULT_URL, Json, ProcessArguments, Switch, Url, Who, Why, plain
from perdure.client.deadline import from_json
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import InvalidInput
from perdure.kernel.process import Process, Status


async def move(
    process: ProcessArguments,
    *,
    to: Annotated[str, Parameter(name="--version")],
    force: Switch = False,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Move processes to another version of their code.

    One that runs is replayed with it at once, and breaks if its history does
    not fit; then move it back and retry it. All others go on with it later.

    Parameters
    ----------
    to
        The version, as a workflow of a live worker names it.
    force
        Also if no live worker hosts that version.
    """
    verb = partial(Handle.move, force=force)
    return await command_each(process, verb, _moved, to, who=who, why=why, url=url, json=json)


async def _moved(engine: Engine, row: Process) -> str:
    after = await engine.row(row.id)
    then = await goes_on(engine, row) if after.status is Status.RUNNING else f"it is still {after.status}"
    return f"has version {after.code!r}; {then}"


async def set_priority(
    process: ProcessArguments,
    *,
    priority: int,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Let workers take processes earlier or later than others.

    Steps in flight begin again, under their keys.

    Parameters
    ----------
    priority
        From 0 (first) to 9; usual is 4.
    """
    return await command_each(
        process, Handle.set_priority, f"has priority {priority}", priority, who=who, why=why, url=url, json=json
    )


async def set_deadline(
    process: ProcessArguments,
    *,
    deadline: str,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Give processes another time at which they fail if not ended.

    Steps in flight begin again, under their keys.

    Parameters
    ----------
    deadline
        From now: 90s, 15m, 2h, 7d. Or a time: 2026-12-31T12:00+01:00. Or none.
    """
    given = from_json(deadline_of(deadline))

    async def told(engine: Engine, row: Process) -> str:
        after = await engine.row(row.id)
        if after.deadline is None:
            return "has no deadline"
        return f"has a deadline, in {text.span((after.deadline - await engine.store.now()) / 1_000_000)}"

    return await command_each(process, Handle.set_deadline, told, given, who=who, why=why, url=url, json=json)


def value_of(verb: str, typed: str) -> Any:
    """The value of an operation as it is typed: a version and a deadline are no JSON."""
    if verb == "move":
        return typed
    return deadline_of(typed) if verb == "set-deadline" else plain(typed)


def deadline_of(typed: str) -> float | str:
    """A deadline as it is typed: the seconds of a duration, else the text."""
    try:
        return text.seconds_of(typed)
    except InvalidInput:
        return typed
