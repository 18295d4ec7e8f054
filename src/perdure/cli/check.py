"""Checks at the terminal: what is checked, check runs started, looked at and cancelled, and what they have found."""

from __future__ import annotations

from collections.abc import Mapping

from cyclopts import App
from rich.table import Table

from perdure.authoring.check.plan import CheckStatus
from perdure.cli import exit_code, output, text
from perdure.cli.options import DEFAULT_URL, Json, Switch, Url, Who, Why, connected, present, user
from perdure.cli.rows import Rows
from perdure.cli.table import Facts
from perdure.client.checks import CheckPreview

check = App(name="check", help="Examine what is stored, and mend what is damaged.", help_format="plaintext")


@check.command
async def ls(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List the checks, and how far they are in the background."""
    async with connected(url) as engine:
        checks = engine.checks.list()
        audit = await engine.checks.background()
        if json:
            output.show_json({"checks": checks, "background": audit})
            return
        rows = Rows("check", "what must hold", "--fix", "what is done, or can be done")
        for one in checks:
            rows.add(one.name, one.says, "yes" if one.mends else "no", one.fixes)
        now = await present(engine)
        ended = "no round is done yet"
        if audit.ended_at is not None:
            ended = f"the last round ended {text.when(audit.ended_at, now)}"
        output.show(rows, "")
        output.show(f"in the background: {audit.checked:,} processes examined in this round; {ended}")


@check.command
async def run(
    *,
    only: list[str] | None = None,
    where: str = "",
    kind: str = "",
    fix: Switch = False,
    dry_run: Switch = False,
    rate: float | None = None,
    priority: int | None = None,
    wait: Switch = False,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Examine all processes now: perdure check run, or perdure check run --kind order --fix.

    A worker does it, and another one goes on if that dies. What is found is
    kept: perdure check findings. With --dry-run nothing is written, and no
    worker is needed; the exit code is 1 if a fault was found, and so it is
    with --wait if a fault was found and not mended.

    Parameters
    ----------
    only
        Only this check; may be given several times.
    where
        Only processes that fit this query: "kind = order and age > 1h".
    kind
        Only processes of this kind.
    fix
        Mend what can be mended safely; each fix is one ordinary commit.
    dry_run
        Show what is wrong and what --fix would do, and change nothing.
    rate
        At most so many processes a second.
    priority
        0 (first) to 9: which of several waiting runs a worker takes first.
    wait
        Wait for its end.
    """
    async with connected(url) as engine:
        names = tuple(only or ())
        if dry_run:
            preview = await engine.checks.preview(only=names, where=where, kind=kind)
            if json:
                output.show_json(preview)
            else:
                _show_preview(preview)
            return exit_code.FAILED if preview.found else exit_code.DONE
        started = await engine.checks.start(
            only=names, where=where, kind=kind, fix=fix, rate=rate, priority=priority, who=who or user(), why=why
        )
        status = await (started.result() if wait else started.status())
        if json:
            output.show_json({"id": started.id, "status": status})
        elif wait:
            output.show(_status(status))
        else:
            output.show(f"started check run {started.id}; `perdure check show {started.id}` shows how far it is")
        left = any(number > status.mended.get(name, 0) for name, number in status.found.items())
        return exit_code.FAILED if wait and left else exit_code.DONE


@check.command
async def show(run: str = "", *, limit: int = 100, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Show how far a check run is, and what it has found; without an id, list the runs, the newest first.

    Parameters
    ----------
    run
        Its id.
    limit
        How many to list.
    """
    async with connected(url) as engine:
        if run:
            status = await engine.checks.handle(run).status()
            output.show_json(status) if json else output.show(_status(status))
            return
        runs = await engine.checks.runs(limit)
        if json:
            output.show_json([{"id": id, "status": status} for id, status in runs])
            return
        rows = Rows("check run", "phase", "examined", "found", "mended", "why it was cancelled")
        for id, one in runs:
            found, mended = sum(one.found.values()), sum(one.mended.values())
            rows.add(id, one.phase, _progress(one), f"{found:,}", f"{mended:,}", one.cancelled)
        output.show(rows if runs else "there has been no check run")
        if len(runs) == limit:
            output.show("", f"no more than {limit:,} are listed: --limit")


@check.command
async def findings(*, gone: Switch = False, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List what checks have found and is there still, the newest first.

    Parameters
    ----------
    gone
        List also what is not there any more, and who had it mended.
    """
    async with connected(url) as engine:
        found = await engine.checks.findings(gone=gone)
        if json:
            output.show_json(found)
            return
        now = await present(engine)
        rows = Rows("process", "kind", "check", "since", "gone", "what is wrong")
        for one in found:
            by = f" ({one.mended} by {one.mended_by})" if one.mended_by else ""
            rows.add(
                one.process, one.kind, one.check, text.when(one.since, now), text.when(one.gone_at, now) or "-",
                f"{one.text}{by}",
            )  # fmt: skip
        output.show(rows if found else "checks have found nothing")


@check.command
async def cancel(run: str, *, why: Why = "", url: Url = DEFAULT_URL) -> None:
    """Cancel a check run: what it has mended stays mended.

    Parameters
    ----------
    run
        Its id.
    """
    async with connected(url) as engine:
        await engine.checks.handle(run).cancel(why)
        output.show(f"check run {run} is cancelled")


def _show_preview(preview: CheckPreview) -> None:
    if preview.sample:
        rows = Rows("process", "kind", "check", "--fix", "what is wrong")
        for one in preview.sample:
            rows.add(one.process, one.kind, one.check, one.fix or "nothing safe is known", one.text)
        output.show(rows, "")
    facts = Facts()
    facts.add("examined", f"{preview.checked:,} processes")
    facts.add("found", _counts(preview.found) or "nothing")
    facts.add("would be mended", _counts(preview.would_mend))
    output.show(facts.grid)


def _status(status: CheckStatus) -> Table:
    facts = Facts()
    facts.add("phase", status.phase)
    facts.add("examined", _progress(status))
    facts.add("found", _counts(status.found) or "nothing")
    facts.add("mended", _counts(status.mended))
    facts.add("cancelled", status.cancelled)
    return facts.grid


def _progress(status: CheckStatus) -> str:
    """How many were examined, of how many if that was counted; those that came meanwhile are not in the total."""
    of = f" of {status.total:,} ({min(status.checked / status.total, 1):.0%})" if status.total else ""
    return f"{status.checked:,}{of}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in sorted(counts.items()))
