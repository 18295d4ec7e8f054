"""Rules that alert, at the terminal: added, listed with what they have found, silenced, tried and removed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from cyclopts import App, Parameter

from perdure.cli import exit_code, output, text
from perdure.cli.options import DEFAULT_URL, ORIGIN, Json, Switch, Url, Who, Why, connected, present, user
from perdure.cli.plain_output import say
from perdure.cli.rows import Rows
from perdure.client.alerting.rule import AlertRule, AlertWhen
from perdure.client.alerting.rules import AlertRuleView, AlertTrial
from perdure.engine import Engine
from perdure.errors import DefinitionError, InvalidInput

alert = App(name="alert", help="Add, list, silence, try and remove rules that alert.", help_format="plaintext")

Places = Annotated[list[str] | None, Parameter(name="--to", negative="")]
Hours = Annotated[list[str] | None, Parameter(negative="")]


@alert.command(name=["list", "ls"])
async def list_rules(*, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List the rules: what each alerts of, whom it tells, and of what it holds now."""
    async with connected(url) as engine:
        await _show(engine, await engine.alerts.list(), json=json)


@alert.command
async def add(
    name: str,
    when: AlertWhen,
    *,
    to: Places = None,
    where: str = "",
    at_least: int | None = None,
    within: str = "1h",
    lasting: str | None = None,
    every: str = "30s",
    per_hour: int = 12,
    resolved: Switch = False,
    quiet: Hours = None,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Add a rule, in place of one of that name: when something is so, people are told what is new, once.

    Parameters
    ----------
    name
        The name of the rule.
    when
        What it alerts of.
    to
        Who is told: log, https://..., or mailto:...; may be given several times. Default: log.
    where
        A query that narrows broken, overdue and failures: "kind = order and age > 1h".
    at_least
        From how many processes on, of one kind or one fingerprint.
    within
        For failures: in which time so many have failed: 90s, 15m, 2h, 7d.
    lasting
        For how long it must have been so.
    every
        How often a worker looks.
    per_hour
        How many messages are sent in an hour at most; what comes in between is counted in the next one.
    resolved
        Tell too when it is over.
    quiet
        Hours in which nothing is sent: "22:00-06:00 Europe/Zurich"; may be given several times.
    """
    lasts = None if lasting is None else text.seconds_of(lasting)
    try:
        rule = AlertRule(
            name, when, to or ("log",), where, at_least, text.seconds_of(within), lasts, text.seconds_of(every),
            per_hour, resolved, quiet or (),
        )  # fmt: skip
    except DefinitionError as error:
        raise InvalidInput(str(error)) from None
    async with connected(url) as engine:
        added = await engine.alerts.add(rule, who=who or user(), why=why, origin=ORIGIN)
        await _show(engine, [added], json=json)


@alert.command
async def silence(
    name: str,
    *,
    last: Annotated[str | None, Parameter(name="--for")] = None,
    until: str | None = None,
    daily: Hours = None,
    end: Switch = False,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Send nothing of a rule for a while, until a time, or in hours of each day; what is so afterwards is told then.

    Parameters
    ----------
    name
        The name of the rule.
    last
        For how long: 90s, 15m, 2h, 7d.
    until
        Until when: 2026-11-28T06:00Z.
    daily
        Hours of each day: "22:00-06:00 Europe/Zurich"; may be given several times.
    end
        End every silence of the rule.
    """
    if end == (last is not None or until is not None or daily is not None):
        raise InvalidInput("give --for, --until or --daily, or else --end to silence the rule no more")
    lasts = None if last is None else text.seconds_of(last)
    async with connected(url) as engine:
        seen = await engine.alerts.silence(
            name, until=None if until is None else _time(until), last=lasts, daily=daily, who=who or user(), why=why,
            origin=ORIGIN,
        )  # fmt: skip
        await _show(engine, [seen], json=json)


@alert.command(name="test")
async def trial(name: str, *, json: Json = False, url: Url = DEFAULT_URL) -> int:
    """Send a message to each place of a rule, from here, and show of what the rule holds now; ends with 1 if one fails.

    Parameters
    ----------
    name
        The name of the rule.
    """
    async with connected(url) as engine:
        trial = await engine.alerts.test(name)
    if json:
        output.show_json(trial)
    else:
        output.show(_tried(trial))
    return exit_code.DONE if trial.works else exit_code.FAILED


@alert.command(name=["remove", "rm"])
async def remove(name: str, *, who: Who = "", why: Why = "", url: Url = DEFAULT_URL) -> None:
    """Remove a rule; a program that is given it adds it again when it starts.

    Parameters
    ----------
    name
        The name of the rule.
    """
    async with connected(url) as engine:
        await engine.alerts.remove(name, who=who or user(), why=why, origin=ORIGIN)
    say(f"removed alert rule {name}")


def _time(typed: str) -> datetime:
    try:
        at = datetime.fromisoformat(typed)
    except ValueError:
        raise InvalidInput(f"--until is {typed!r:.40}, which is no time; write 2026-11-28T06:00Z") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


async def _show(engine: Engine, views: list[AlertRuleView], *, json: bool) -> None:
    if json:
        output.show_json(views)
        return
    now = await present(engine)
    output.show(_rows(views, now) if views else "there is no alert rule; add one with: perdure alert add")


def _rows(views: list[AlertRuleView], now: datetime) -> Rows:
    """Rules, one a row: what each alerts of, whom it tells, and how it stands."""
    rows = Rows("rule", "when", "to", "silent", "looked", "state")
    for view in views:
        rows.add(
            view.name, _when(view), text.cut(", ".join(view.to), 100), _silent(view, now),
            text.when(view.looked_at, now), text.cut(_state(view), 300),
        )  # fmt: skip
    return rows


def _when(view: AlertRuleView) -> str:
    many = f", {view.at_least:,} or more" if view.at_least > 1 else ""
    return f"{view.when}{many}" + (f", {text.cut(view.where, 100)}" if view.where else "")


def _silent(view: AlertRuleView, now: datetime) -> str:
    until = view.silenced_until
    passing = [f"for {text.span((until - now).total_seconds())}"] if until is not None and until > now else []
    return ", ".join([*passing, *view.silenced_daily, *view.quiet])


def _state(view: AlertRuleView) -> str:
    waits = [f"{view.waiting} messages wait"] if view.waiting else []
    wrong = [view.error] if view.error else []
    return "; ".join([*(one.text for one in view.active), *waits, *wrong]) or "nothing"


def _tried(trial: AlertTrial) -> Rows:
    rows = Rows("place", "message")
    for place, error in trial.sent:
        rows.add(place, text.cut(error, 300) or "taken")
    rows.add("now", text.cut("; ".join(trial.holds), 300) or "nothing would be told")
    return rows
