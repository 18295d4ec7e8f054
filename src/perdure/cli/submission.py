"""A submission: many processes started from lines of JSON, with progress."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from perdure.authoring.workflow import Workflow
from perdure.cli import page
from perdure.cli.argument import whole_input
from perdure.engine import Engine
from perdure.errors import InvalidInput
from perdure.kernel.names import check_key
from perdure.limits import BATCH_RECORDS


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """One line: the arguments as an array or object, and the caller's own id."""

    input: msgspec.Raw
    key: str | None = None


async def submit(engine: Engine, workflow: Workflow[Any, Any], source: Iterable[str], *, json: bool) -> None:
    """Start one process for each line; a bad line stops, and the same file can be sent again once it is mended."""
    created = existed = 0
    lines = enumerate(source, 1)
    console = page.console(error=True)
    columns = SpinnerColumn(), TextColumn("starting"), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("starting", total=None)
        while calls := list(_calls(workflow, islice(lines, BATCH_RECORDS), created + existed)):
            handles = await engine.start_many(workflow, [args for args, _ in calls], keys=[key for _, key in calls])
            new = sum(handle.created for handle in handles)
            created += new
            existed += len(handles) - new
            progress.update(bar, advance=len(handles))
    if json:
        page.show_json({"kind": workflow.name, "created": created, "existed": existed})
    else:
        there = f"; {existed:,} were there already" if existed else ""
        print(f"started {created:,} processes of kind {workflow.name}{there}")


def _calls(
    workflow: Workflow[Any, Any], lines: Iterable[tuple[int, str]], before: int
) -> Iterator[tuple[list[Any], str | None]]:
    for number, text in lines:
        if not text.strip():
            continue
        try:
            line = msgspec.json.decode(text, type=Line)
            args, named = whole_input(workflow, bytes(line.input).decode())
            if line.key is not None:
                check_key(line.key)
            if named:
                raise InvalidInput("write the arguments as an array, in their order")
        except (ValueError, UnicodeError) as error:
            raise InvalidInput(
                f"line {number}: {error} The {before:,} before this batch were started; correct the line and send the "
                "file again: lines with keys are started once."
            ) from None
        yield args, line.key
