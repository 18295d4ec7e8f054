"""The clock at the terminal: the store's time beside that of its machine, and the order to bring them into step."""

from __future__ import annotations

from cyclopts import App

from perdure.cli import page, text
from perdure.cli.connection import ORIGIN, connected, user
from perdure.cli.option import DEFAULT_URL, Json, Url, Who, Why
from perdure.timekeeping import ClockView

clock = App(name="clock", help="See the store's time beside the machine's clock, and mend it.", help_format="plaintext")


@clock.default
async def state(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Say what time it is in the store and on its machine, and how far the first is ahead since when."""
    async with connected(url) as engine:
        _show(await engine.clock.state(), json=json)


@clock.command
async def mend(*, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Let the store's time run at half the clock's pace until the two are in step; timers ring later meanwhile."""
    async with connected(url) as engine:
        _show(await engine.clock.mend(who=who or user(), why=why, origin=ORIGIN), json=json)


@clock.command
async def leave(*, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Take the order to mend it back: the time comes into step slowly, as no timer notices."""
    async with connected(url) as engine:
        _show(await engine.clock.leave(who=who or user(), why=why, origin=ORIGIN), json=json)


def _show(view: ClockView, *, json: bool) -> None:
    if json:
        page.show_json(view)
        return
    lines = [
        f"store's time     {view.at:%Y-%m-%d %H:%M:%S} UTC",
        f"machine's clock  {view.machine_at:%Y-%m-%d %H:%M:%S} UTC",
    ]
    if not view.ahead_seconds or view.ahead_since is None:
        lines.append("they are in step")
    else:
        since = text.when(view.ahead_since, view.at)
        lines.append(f"THE STORE'S TIME IS AHEAD by {view.ahead_seconds:.1f} s, since the clock was put back {since}")
        if view.mending:
            why = f" because: {view.why}" if view.why else ""
            lines.append(
                f"it runs at half the clock's pace until they are in step; ordered by {view.who or 'somebody'}{why}"
            )
        else:
            lines.append("it comes back into step by itself, very slowly; `perdure clock mend` has it do so sooner")
    page.show("\n".join(lines))
