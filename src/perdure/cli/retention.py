"""Retention at the terminal: by which rules processes are removed, how far each has come, and doing so now."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from cyclopts import App

from perdure import settings
from perdure.cli import output, text
from perdure.cli.options import DEFAULT_URL, Json, Url, connected, present
from perdure.cli.plain_output import say
from perdure.cli.rows import Rows
from perdure.client.retention import RetentionRun
from perdure.kernel.retention import RetentionRule

retention = App(
    name="retention", help="Show and run the rules by which ended processes are removed.", help_format="plaintext"
)
_NO_RULES = f"there is no rule: write [[retention]] into {settings.CONFIG_FILE}, or set {settings.RETENTION}"


@retention.command(name="list")
async def list_(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List the rules in their order, and how far each has come.

    They are those of $PERDURE_RETENTION and of perdure.toml; rules that a
    program gives to its engine are known to that program only.
    """
    async with connected(url) as engine:
        views = await engine.retention.list()
        if json:
            output.show_json([asdict(view) | {"rule": _plain(view.rule)} for view in views])
            return
        now = await present(engine)
    rows = Rows("kind", "status", "kept for", "archive", "looked", "removed", "archived", "left")
    for view in views:
        rows.add(
            *_cells(view.rule),
            text.when(view.seen_at, now),
            f"{view.removed:,}",
            f"{view.archived:,}",
            f"{view.left:,}",
        )
    output.show(rows if views else _NO_RULES)


@retention.command
async def preview(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Count what each rule would remove now; nothing is changed."""
    async with connected(url) as engine:
        found = await engine.retention.preview()
        if json:
            output.show_json([asdict(one) | {"rule": _plain(one.rule)} for one in found])
            return
        now = await present(engine)
    rows = Rows("kind", "status", "kept for", "archive", "would go", "oldest ended", "parents wait for")
    for one in found:
        rows.add(*_cells(one.rule), f"{one.processes:,}", text.when(one.oldest, now), f"{one.waiting:,}")
    output.show(rows if found else _NO_RULES)


@retention.command
async def run(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Archive and remove now what the rules say, as workers that have them do by themselves.

    It may be broken off, and goes on where it was when it is run again.
    """
    async with connected(url) as engine:
        known = bool(engine.retention.rules)
        done = await engine.retention.run(None if json else _tell)
    if json:
        output.show_json(done)
    elif not known:
        output.show(_NO_RULES)
    else:
        left = f", {done.left:,} left for now" if done.left else ""
        output.show(f"{done.removed:,} processes removed, {done.archived:,} of them archived{left}")
        for file in done.files:
            output.show(file)


def _tell(done: RetentionRun) -> None:
    if sys.stdout.isatty() and done.removed:
        say(f"{done.removed:,} removed so far, {done.archived:,} of them archived")


def _cells(rule: RetentionRule) -> tuple[str, str, str, str]:
    age = "ever" if rule.seconds is None else text.span(rule.seconds)
    return rule.kind, ", ".join(sorted(rule.statuses)), age, rule.folder or "-"


def _plain(rule: RetentionRule) -> dict[str, Any]:
    """The rule as perdure.toml would say it."""
    return {
        "kind": rule.kind,
        "status": sorted(rule.statuses),
        "after": rule.seconds,
        "archive": rule.folder,
        "compress": rule.compress,
    }
