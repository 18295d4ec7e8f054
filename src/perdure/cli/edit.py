"""Editing at the terminal: another input for a process."""

from __future__ import annotations

from perdure.cli.commands import each, goes_on
from perdure.cli.options import DEFAULT_URL, ORIGIN, Json, ProcessArgument, Switch, Url, Who, Why, plain, user
from perdure.engine import Engine
from perdure.errors import InvalidInput
from perdure.kernel.process import Process, Status


async def edit(
    process: ProcessArgument,
    *,
    input: str,
    restart: Switch = False,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Give a process another input.

    One that has begun has to begin again with it: add --restart.

    Parameters
    ----------
    input
        The arguments of its workflow as JSON, an array or an object.
    restart
        Let a process that has begun begin again, in a new run that keeps nothing.
    """
    given = plain(input)
    if not isinstance(given, list | dict):
        raise InvalidInput("--input is no array or object; give the arguments as JSON, like '[\"A-17\", 1299]'")
    args, kwargs = (given, {}) if isinstance(given, list) else ([], given)

    async def edited(engine: Engine, row: Process) -> str:
        await engine.process(row.id).edit_input(
            args, kwargs, restart=restart, who=who or user(), why=why, origin=ORIGIN
        )
        after = await engine.row(row.id)
        return "has another input; it is still held" if after.status is Status.HELD else await goes_on(engine, row)

    return await each([process], edited, url=url, json=json)
