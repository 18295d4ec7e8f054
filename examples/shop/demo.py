"""The demonstration: a thousand orders on three workers, of which one is killed and one is stopped for a while.

``perdure demo``, ``make demo`` or ``python -m examples.shop.demo``. Nothing is simulated: the workers are OS processes,
the signals are SIGKILL and SIGSTOP, and the books are checked from the shop's own tables.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.shop.books import Check, asked_again, audit, read_orders, read_stock
from examples.shop.play import Play
from examples.shop.recovery import recoveries
from perdure import PerdureError

SHOWN_WRONGS = 5


def run(url: str | None = None, orders: int = 1000, keep: bool = False) -> int:
    """Give the demonstration; the answer is 0 if the books are right and 1 if not."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    try:
        return asyncio.run(_run(url, orders, folder))
    finally:
        if keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


async def _run(url: str | None, count: int, folder: Path) -> int:
    orders = read_orders(count)
    play = Play(url, orders, folder)
    where = "PostgreSQL" if url else "SQLite"
    play.screen.console.print(f"{len(orders):,} orders, {where}, {folder}")
    async with AsyncExitStack() as stack:
        await play.open(stack)
        with play.screen:
            finished = await play.run()
        await play.staff.dismiss()
        right = tell_books(play.screen.console, await audit(play.shop, orders, read_stock()))
        tell_recoveries(play.screen.console, await recoveries(play))
        if right and finished:
            play.screen.console.print(f"\n{in_short(play, await asked_again(play.shop))}", style="bold")
    return 0 if right and finished else 1


def tell_books(console: Console, checks: list[Check]) -> bool:
    """Print the audit; False if anything is wrong."""
    console.print("\nThe shop's books, from its own tables", style="bold")
    table = Table.grid(padding=(0, 2))
    for check in checks:
        verdict = "[bold red]WRONG[/]" if check.wrong else "[green]right[/]"
        table.add_row(verdict, check.what, check.found)
        for wrong in check.wrong[:SHOWN_WRONGS]:
            table.add_row("", "", wrong)
    console.print(table)
    return not any(check.wrong for check in checks)


def tell_recoveries(console: Console, told: list[tuple[str, str]]) -> None:
    """Print what had to be put right on the way."""
    console.print("\nWhat was put right on the way", style="bold")
    table = Table.grid(padding=(0, 2))
    for what, found in told:
        table.add_row(what, found)
    console.print(table)


def in_short(play: Play, again: int) -> str:
    """The one sentence to repeat to a colleague."""
    return (
        f"In short: {play.killed} and {play.frozen}; none of the {len(play.orders):,} orders was lost and nothing "
        f"happened twice, where a plain queue would have repeated {again:,} effects (charges, parcels, letters)."
    )


if __name__ == "__main__":
    try:
        sys.exit(run(os.environ.get("PERDURE_URL") or None))
    except PerdureError as error:
        sys.exit(f"perdure: {error}")
