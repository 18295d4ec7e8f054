"""Recovery at the terminal: whether workers recover by themselves, and the switch that pauses it."""

from __future__ import annotations

from cyclopts import App

from perdure.cli import page, text
from perdure.cli.connection import ORIGIN, connected, user
from perdure.cli.line import complain
from perdure.cli.option import DEFAULT_URL, Json, Url, Who, Why
from perdure.engine import Engine
from perdure.recovery import RecoveryView
from perdure.view import instant

recovery = App(name="recovery", help="Pause automatic recovery, and let it go on.", help_format="plaintext")


@recovery.default
async def state(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Say whether automatic recovery is on, or who has paused it since when and why."""
    async with connected(url) as engine:
        await _show(engine, await engine.recovery.state(), json=json)


@recovery.command
async def pause(*, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Have no worker ended, no lease taken over, nothing overdue forced until it is resumed; ordinary work goes on."""
    async with connected(url) as engine:
        await _show(engine, await engine.recovery.pause(who=who or user(), why=why, origin=ORIGIN), json=json)


@recovery.command
async def resume(*, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Let workers recover by themselves again."""
    async with connected(url) as engine:
        await _show(engine, await engine.recovery.resume(who=who or user(), why=why, origin=ORIGIN), json=json)


async def warn(engine: Engine) -> None:
    """Say so, loudly, where automatic recovery is paused."""
    view = await engine.recovery.state()
    if view.paused:
        complain(f"{await _said(engine, view)}. `perdure recovery resume` ends it.")


async def _show(engine: Engine, view: RecoveryView, *, json: bool) -> None:
    if json:
        page.show_json(view)
    else:
        page.show(await _said(engine, view))


async def _said(engine: Engine, view: RecoveryView) -> str:
    now = instant(await engine.store.now())
    if view.paused_at is None or now is None:
        return "automatic recovery is on"
    why = f" because: {view.paused_why}" if view.paused_why else ""
    return f"AUTOMATIC RECOVERY IS PAUSED by {view.paused_by or 'somebody'}, {text.when(view.paused_at, now)}{why}"
