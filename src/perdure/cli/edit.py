"""Editing at the terminal: another input or other attributes for a process, other fields for a machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from cyclopts import Parameter

from perdure.cli.commands import each, goes_on
from perdure.cli.options import (
    DEFAULT_URL,
    ORIGIN,
    Json,
    ProcessArgument,
    Switch,
    Url,
    Who,
    Why,
    attributes_of,
    plain,
    user,
)
from perdure.engine import Engine
from perdure.errors import InvalidInput
from perdure.kernel.process import Process, Status


async def edit(
    process: ProcessArgument,
    *,
    input: str | None = None,
    field: Annotated[list[str] | None, Parameter(negative="")] = None,
    attribute: Annotated[list[str] | None, Parameter(negative="")] = None,
    restart: Switch = False,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Give a process another input, other attributes or fields.

    One that has begun has to begin again with another input: add --restart. The
    fields of a machine are edited while it is held or broken, and it stays so.

    Parameters
    ----------
    input
        The arguments of its workflow as JSON, an array or an object.
    restart
        Let a process that has begun begin again, in a new run that keeps nothing.
    field
        A field of a machine with its new value, as name=value; may be given several times.
    attribute
        An attribute, by which it is searched, with its new value, as name=value;
        name=null removes it; may be given several times.
    """
    if attribute:
        if input is not None or field or restart:
            raise InvalidInput("--attribute is given with --input, --field or --restart; edit the one or the other")
        return await _edit_attributes(process, attributes_of(attribute), who=who, why=why, json=json, url=url)
    if field:
        if input is not None or restart:
            raise InvalidInput("--field is given with --input or --restart; edit the one or the other")
        return await _edit_fields(process, attributes_of(field), who=who, why=why, json=json, url=url)
    if input is None:
        raise InvalidInput(
            "nothing to edit is given; give --input, --attribute name=value, or of a machine --field name=value"
        )
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


async def _edit_fields(process: str, values: Mapping[str, Any], *, who: str, why: str, json: bool, url: str) -> int:
    async def edited(engine: Engine, row: Process) -> str:
        await engine.process(row.id).edit_fields(values, who=who or user(), why=why, origin=ORIGIN)
        return f"has other values in {', '.join(values)}; it is still {row.status}"

    return await each([process], edited, url=url, json=json)


async def _edit_attributes(process: str, values: Mapping[str, Any], *, who: str, why: str, json: bool, url: str) -> int:
    async def edited(engine: Engine, row: Process) -> str:
        await engine.process(row.id).edit_attributes(values, who=who or user(), why=why, origin=ORIGIN)
        return f"has other attributes: {', '.join(values)}; it is still {row.status}"

    return await each([process], edited, url=url, json=json)
