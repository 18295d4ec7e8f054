"""Commands for a whole database: the switch of automatic recovery, and the store's clock."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from cyclopts import App

from perdure.cli import output, text
from perdure.cli.options import DEFAULT_URL, ORIGIN, Json, Url, Utc, Who, Why, connected, present, user
from perdure.cli.plain_output import complain
from perdure.cli.rows import Rows
from perdure.client.clock import ClockView
from perdure.engine import Engine

if TYPE_CHECKING:
    from perdure.client.recovery import RecoveryView, SweepView

recovery = App(name="recovery", help="Pause, resume, limit and watch automatic recovery.", help_format="plaintext")


@recovery.default
async def recovery_state(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Say whether automatic recovery is on, or who has paused it, and its budget."""
    async with connected(url) as engine:
        await _show_recovery(engine, await engine.recovery.state(), json=json)


@recovery.command
async def pause(*, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Pause automatic recovery: workers end, revive and take over nothing.

    Until it is resumed, no worker is ended by others, no lapsed lease is taken
    over, and nothing that is over its deadline is forced to end. Ordinary work
    goes on.
    """
    async with connected(url) as engine:
        await _show_recovery(engine, await engine.recovery.pause(who=who or user(), why=why, origin=ORIGIN), json=json)


@recovery.command
async def resume(*, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Let workers recover processes by themselves again."""
    async with connected(url) as engine:
        await _show_recovery(engine, await engine.recovery.resume(who=who or user(), why=why, origin=ORIGIN), json=json)


@recovery.command
async def limit(
    rate: int | None = None,
    *,
    per: str = "1m",
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Limit how many processes workers revive in a while, all together.

    The others wait. Without a number the limit is removed.

    Parameters
    ----------
    rate
        How many are revived in the time given by --per, at most.
    per
        The time for it: 30s, 15m, 2h. Default: one minute.
    """
    async with connected(url) as engine:
        view = await engine.recovery.limit(rate, text.seconds_of(per), who=who or user(), why=why, origin=ORIGIN)
        await _show_recovery(engine, view, json=json)


@recovery.command
async def sweeps(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Show when each sweep has last passed, what it found and how it ended.

    A sweep finds one kind of stuck process. What it left alone waits until
    recovery is resumed, or until its budget allows more.
    """
    async with connected(url) as engine:
        views = await engine.recovery.sweeps()
        if json:
            output.show_json(views)
            return
        output.show(_sweep_rows(views, await present(engine)) if views else "no sweep has passed yet: no worker lives")


@recovery.command
async def progress(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Show how far the sweeps have come that recover processes.

    A wave begins with a find, and ends when nothing is found for a minute.
    Freed and examined are of the last wave, waiting is now.
    """
    async with connected(url) as engine:
        views = await engine.recovery.progress()
        if json:
            output.show_json(views)
            return
        now = await present(engine)
        rows = Rows("sweep", "wave began", "last find", "examined", "freed", "waiting")
        for one in views:
            waiting = f"{one.waiting:,}{' or more' if one.more else ''}"
            began, last = text.when(one.since, now) or "-", text.when(one.at, now) or "-"
            rows.add(one.sweep, began, last, f"{one.examined:,}", f"{one.recovered:,}", waiting)
        output.show(rows)


def _sweep_rows(views: list[SweepView], now: datetime) -> Rows:
    rows = Rows(
        "sweep", "every", "last pass", "by", "took", "seen", "changed", "left", "passes", "all changed", "error"
    )
    for view in views:
        numbers = (view.seen, view.changed, view.left, view.passes, view.total_changed)
        error = f"{view.error}, {text.when(view.failed_at, now)}; {view.errors:,} in all" if view.errors else ""
        last = text.when(view.at, now) or "never"
        every = text.span(view.every) if view.every else "-"
        rows.add(view.sweep, every, last, view.by, text.span(view.took), *(f"{one:,}" for one in numbers), error)
    return rows


async def warn(engine: Engine) -> None:
    """Warn on the error output if automatic recovery is paused."""
    view = await engine.recovery.state()
    if view.paused:
        complain(f"{await _said(engine, view)}. `perdure recovery resume` ends it.")


async def _show_recovery(engine: Engine, view: RecoveryView, *, json: bool) -> None:
    if json:
        output.show_json(view)
    else:
        output.show(await _said(engine, view))


async def _said(engine: Engine, view: RecoveryView) -> str:
    limited = (
        "" if view.rate is None else f"; at most {view.rate:,} revivals in {text.span(view.per)}, {view.left:,} now"
    )
    if view.paused_at is None:
        return f"automatic recovery is on{limited}"
    why = f" because: {view.paused_why}" if view.paused_why else ""
    paused = text.when(view.paused_at, await present(engine))
    return f"AUTOMATIC RECOVERY IS PAUSED by {view.paused_by or 'an unnamed user'}, {paused}{why}{limited}"


clock = App(name="clock", help="Compare the store's time with the machine's clock.", help_format="plaintext")


@clock.default
async def clock_state(*, utc: Utc = False, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Show the store's time and its machine's clock, and how far apart they are."""
    async with connected(url) as engine:
        _show_clock(await engine.clock.state(), utc=utc, json=json)


@clock.command
async def mend(*, who: Who = "", why: Why = "", utc: Utc = False, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Slow the store's time down until it agrees with the machine's clock.

    It runs at half the clock's pace until the two agree. Timers fire later in
    the meantime.
    """
    async with connected(url) as engine:
        _show_clock(await engine.clock.mend(who=who or user(), why=why, origin=ORIGIN), utc=utc, json=json)


@clock.command
async def leave(*, who: Who = "", why: Why = "", utc: Utc = False, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Take `mend` back: the store's time comes into step slowly, by itself."""
    async with connected(url) as engine:
        _show_clock(await engine.clock.leave(who=who or user(), why=why, origin=ORIGIN), utc=utc, json=json)


def _show_clock(view: ClockView, *, utc: bool, json: bool) -> None:
    if json:
        output.show_json(view)
        return
    lines = [
        f"store's time     {text.clock(view.at, utc=utc)}",
        f"machine's clock  {text.clock(view.machine_at, utc=utc)}",
    ]
    if not view.ahead_seconds or view.ahead_since is None:
        lines.append("they are in step")
    else:
        since = text.when(view.ahead_since, view.at)
        lines.append(f"THE STORE'S TIME IS AHEAD by {view.ahead_seconds:.1f} s, since the clock was put back {since}")
        if view.mending:
            why = f" because: {view.why}" if view.why else ""
            by = view.who or "an unnamed user"
            lines.append(f"it runs at half the clock's pace until they are in step; ordered by {by}{why}")
        else:
            lines.append("it comes into step by itself, very slowly; `perdure clock mend` makes it faster")
    output.show("\n".join(lines))
