"""The values that a process publishes, printed line by line."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from msgspec import json as msgspec_json

from perdure.cli import text
from perdure.cli.options import DEFAULT_URL, Json, ProcessArgument, Switch, Url, connected, process_named
from perdure.cli.plain_output import safe_json
from perdure.client.values import Stream
from perdure.limits import NAME_BYTES

_VALUE_BYTES = 2**22


async def values(
    process: ProcessArgument,
    name: str | None = None,
    *,
    follow: Switch = False,
    after: int = 0,
    run: int | None = None,
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print the values that a process has published, in their order.

    Parameters
    ----------
    name
        Only those under this name, as in publish("progress", 40).
    follow
        Wait for further values and print them, until the process has ended.
    after
        Only values with higher numbers.
    run
        The values of an earlier run, by its number, and of the runs after it.
    """
    async with connected(url) as engine:
        row = await process_named(engine, process)
        stream = engine.process(row.id).values(name, after=after, run=run, follow=follow)
        async with aclosing(stream):
            async for value in stream:
                print(_line(stream, value, named=name is None, json=json), flush=True)


def _line(stream: Stream[Any], value: Any, *, named: bool, json: bool) -> str:
    if json:
        told = {"run": stream.run, "number": stream.number, "name": stream.name, "value": value}
        return safe_json(msgspec_json.encode(told))
    name = f"{text.cut(stream.name or '', NAME_BYTES)}  " if named else ""
    return f"{stream.number}  {name}{text.value(value, _VALUE_BYTES)}"
