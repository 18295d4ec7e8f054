"""Why a process does not move, at the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from perdure.cli import exit_code, output, table, text
from perdure.cli.database import warn
from perdure.cli.options import DEFAULT_URL, Json, ProcessArgument, Url, Utc, connected, present, process_named
from perdure.client.explaining.explanation import Explanation


async def explain(process: ProcessArgument, *, utc: Utc = False, json: Json = False, url: Url = DEFAULT_URL) -> int:
    """Say why a process does not move, and what can be done.

    It says the cause and since when, what speaks for it, what happens next by
    itself, and commands that help, each with what it would do: they are tried
    without writing. Ends with 3 if the process stands still: it does not go on
    by itself.
    """
    async with connected(url) as engine:
        await warn(engine)
        found = await engine.explain((await process_named(engine, process)).id)
        if json:
            output.show_json(found)
        else:
            output.show(*_page(found, await present(engine), utc=utc))
    return exit_code.STANDS_STILL if found.stands_still else exit_code.DONE


def _page(found: Explanation, now: datetime, *, utc: bool) -> Iterator[RenderableType]:
    name = f"{found.kind} {found.key or found.id}"
    yield Text.assemble((name, "bold"), "  ", table.status(found.status))
    facts = table.Facts()
    facts.add("cause", f"{found.cause}: {found.why}")
    facts.add("since", f"{text.when(found.since, now)} ({text.clock(found.since, utc=utc)})")
    if found.also:
        facts.add("also", ", ".join(found.also))
    at = "" if found.next_at is None else f" ({text.when(found.next_at, now)}, {text.clock(found.next_at, utc=utc)})"
    facts.add("next", f"{found.mover}: {found.next}{at}")
    yield facts.grid
    yield from _lines("evidence", found.evidence)
    for number, one in enumerate(found.proposals):
        if number == 0:
            yield ""
            yield Text("what you can do", style="bold")
        yield Padding(Text(one.command, style="bold"), (0, 0, 0, 2), expand=False)
        yield Padding(Text(one.does + (f": {one.preview}" if one.preview else "")), (0, 0, 0, 6), expand=False)
    if found.child is not None:
        yield ""
        yield Text("the child that it waits for", style="bold")
        for part in _page(found.child, now, utc=utc):
            yield Padding(part, (0, 0, 0, 2), expand=False)


def _lines(title: str, lines: tuple[str, ...]) -> Iterator[RenderableType]:
    if lines:
        yield ""
        yield Text(title, style="bold")
    for line in lines:
        yield Padding(Text(line), (0, 0, 0, 2), expand=False)
