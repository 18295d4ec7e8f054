"""What holds for a whole database, at the terminal: the switch of automatic recovery, and the store's clock."""

from __future__ import annotations

from cyclopts import App

from perdure.cli import output, text
from perdure.cli.options import DEFAULT_URL, ORIGIN, Json, Url, Who, Why, connected, user
from perdure.cli.plain_output import complain
from perdure.client.clock import ClockView
from perdure.client.recovery import RecoveryView
from perdure.client.view import instant
from perdure.engine import Engine

recovery = App(name="recovery", help="Pause automatic recovery, and let it go on.", help_format="plaintext")


@recovery.default
async def recovery_state(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Say whether automatic recovery is on, or who has paused it since when and why."""
    async with connected(url) as engine:
        await _show_recovery(engine, await engine.recovery.state(), json=json)


@recovery.command
async def pause(*, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Have no worker ended, no lease taken over, nothing overdue forced until it is resumed; ordinary work goes on."""
    async with connected(url) as engine:
        await _show_recovery(engine, await engine.recovery.pause(who=who or user(), why=why, origin=ORIGIN), json=json)


@recovery.command
async def resume(*, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Let workers recover by themselves again."""
    async with connected(url) as engine:
        await _show_recovery(engine, await engine.recovery.resume(who=who or user(), why=why, origin=ORIGIN), json=json)


async def warn(engine: Engine) -> None:
    """Say so, loudly, where automatic recovery is paused."""
    view = await engine.recovery.state()
    if view.paused:
        complain(f"{await _said(engine, view)}. `perdure recovery resume` ends it.")


async def _show_recovery(engine: Engine, view: RecoveryView, *, json: bool) -> None:
    if json:
        output.show_json(view)
    else:
        output.show(await _said(engine, view))


async def _said(engine: Engine, view: RecoveryView) -> str:
    now = instant(await engine.store.now())
    if view.paused_at is None or now is None:
        return "automatic recovery is on"
    why = f" because: {view.paused_why}" if view.paused_why else ""
    return f"AUTOMATIC RECOVERY IS PAUSED by {view.paused_by or 'somebody'}, {text.when(view.paused_at, now)}{why}"


clock = App(name="clock", help="See the store's time beside the machine's clock, and mend it.", help_format="plaintext")


@clock.default
async def clock_state(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Say what time it is in the store and on its machine, and how far the first is ahead since when."""
    async with connected(url) as engine:
        _show_clock(await engine.clock.state(), json=json)


@clock.command
async def mend(*, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Let the store's time run at half the clock's pace until the two are in step; timers ring later meanwhile."""
    async with connected(url) as engine:
        _show_clock(await engine.clock.mend(who=who or user(), why=why, origin=ORIGIN), json=json)


@clock.command
async def leave(*, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Take the order to mend it back: the time comes into step slowly, as no timer notices."""
    async with connected(url) as engine:
        _show_clock(await engine.clock.leave(who=who or user(), why=why, origin=ORIGIN), json=json)


def _show_clock(view: ClockView, *, json: bool) -> None:
    if json:
        output.show_json(view)
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
    output.show("\n".join(lines))
