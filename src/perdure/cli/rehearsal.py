"""Rehearsing at the terminal: stored histories are replayed against the code at hand, with an exit code for CI."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from perdure.authoring.registry import Registry
from perdure.authoring.step_policies import StepPolicies
from perdure.cli import exit_code, output
from perdure.cli.options import DEFAULT_URL, Json, Url, connected
from perdure.cli.rows import Rows
from perdure.errors import InvalidInput
from perdure.kernel.policy import Policies
from perdure.rehearsal.rehearser import Rehearser, of_files
from perdure.rehearsal.report import Rehearsal


async def rehearse(
    modules: Annotated[list[str], Parameter(name="module", negative="", consume_multiple=True)],
    *,
    where: str = "",
    kind: str | None = None,
    code: str | None = None,
    file: str | None = None,
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Replay stored processes against the code at hand, without effects.

    No step runs, nothing is sent, and the database is only read. Without a
    status in the query, processes that have not ended are rehearsed. The exit
    code is 0 if all fit, 1 if some do not.

    Parameters
    ----------
    modules
        The code: shop, shop.orders, shop:order or ./shop.py.
    where
        Only processes that fit this query: "kind = order and age < 30d".
    kind
        Only processes of this kind.
    code
        Rehearse with this version of the workflows, whichever version a process has.
    file
        The processes in this file, or in the *.jsonl files of this folder, that perdure export has written; no database
        is needed.
    """
    registry = Registry(*modules)
    if file is not None:
        if where or kind is not None:
            raise InvalidInput("--file rehearses all that the file holds: leave out --where and --kind")
        found = of_files(file, Rehearser(registry, StepPolicies(Policies()), code))
    else:
        async with connected(url, registry=registry) as engine:
            found = await engine.rehearse(where, kind=kind, version=code)
    if json:
        output.show_json({"total": found.total, "unfit": found.unfit, "misfits": found.misfits})
    else:
        _show(found)
    return exit_code.DONE if found.fits else exit_code.FAILED


def _show(found: Rehearsal) -> None:
    if not found.total:
        output.show("no process fits the query: nothing was rehearsed")
        return
    if found.fits:
        output.show(f"all {found.total:,} processes fit the code")
        return
    rows = Rows("count", "kind", "version", "sample", "fits until", "why")
    for one in found.misfits:
        until = f"event {one.event} {one.step}".rstrip()
        rows.add(
            f"{one.count:,}", one.kind, one.version or "-", one.samples[0], until,
            Text(f"{one.type}: {one.example}", style="red"),
        )  # fmt: skip
    output.show(rows, "")
    output.show(f"{found.unfit:,} of {found.total:,} processes do not fit the code, by {len(found.misfits):,} causes")
