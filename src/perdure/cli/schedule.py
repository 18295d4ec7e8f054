"""Schedules at the terminal: what is started when, what has become of it, and what a person changes about it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from cyclopts import App, Parameter

from perdure.authoring.registry import Registry
from perdure.authoring.schedule.definition import Overlap, Schedule, in_words
from perdure.authoring.schedule.machine import KIND
from perdure.cli import exit_code, output, text
from perdure.cli.options import (
    DEFAULT_URL,
    ORIGIN,
    Attributes,
    Json,
    SkipDays,
    Url,
    Utc,
    Who,
    Why,
    attributes_of,
    connected,
    user,
)
from perdure.cli.plain_output import complain, say
from perdure.cli.rows import Rows
from perdure.cli.schedule_report import of_schedules, report_on_schedule
from perdure.cli.start import TypedArgument, the_workflow, typed_input
from perdure.engine import Engine
from perdure.errors import DefinitionError, InvalidInput
from perdure.kernel.failure import escaped
from perdure.kernel.worker import hosted_by
from perdure.limits import LIST_ROWS
from perdure.turns.verbs import now as time_here

schedule = App(name="schedule", help="Put, pause, trigger and list schedules.", help_format="plaintext")
FIRST_YEAR, LAST_YEAR = 1970, 9000
"""Between which times are taken: there all zones can show them."""


# -- looking -----------------------------------------------------------------------------------------------------------


@schedule.command
async def ls(*, utc: Utc = False, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """List schedules: what each starts, when next, and what it has done."""
    async with connected(url) as engine:
        views = await engine.schedules.list()
        if json:
            output.show_json(views)
        else:
            output.show(of_schedules(views, utc=utc) if views else "there is no schedule")


@schedule.command
async def show(name: str, *, utc: Utc = False, json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Show one schedule: its rules, its counts, and what it started.

    Parameters
    ----------
    name
        The schedule.
    """
    async with connected(url) as engine:
        found = await report_on_schedule(engine, name)
        if json:
            output.show_json(found.as_json())
        else:
            output.show(*found.pages(utc=utc))


@schedule.command(name="next")
def next_times(
    *,
    cron: str,
    zone: str = "UTC",
    skip_day: SkipDays = None,
    count: int = 5,
    after: str | None = None,
    utc: Utc = False,
    json: Json = False,
) -> None:
    """Print the next times of a cron expression; needs no database.

    An expression whose second, minute or hour begins with a star runs whenever
    its time is shown, also in an hour that comes twice as clocks are put back.

    Parameters
    ----------
    cron
        Minute, hour, day, month and weekday, as in "0 3 * * *", perhaps after the second; or @daily.
    zone
        The time zone whose clocks it goes by: Europe/Berlin.
    skip_day
        A day on which nothing comes: 2026-12-25; may be given several times.
    count
        How many times.
    after
        The times after this one, and not after now: 2026-03-28T00:00Z.
    """
    if not 1 <= count <= LIST_ROWS:
        raise InvalidInput(f"--count is {count}. Give a number from 1 to {LIST_ROWS:,}.")
    here = time_here()
    try:
        times = Schedule(cron, zone=zone, skip_days=_days(skip_day)).next(
            count, after=here if after is None else _time(after)
        )
    except DefinitionError as error:
        raise InvalidInput(str(error)) from None
    if json:
        output.show_json(times)
        return
    rows = Rows(f"in {zone}", "in UTC" if utc else "here", "")
    for one in times:
        there = one.astimezone(ZoneInfo(zone)).strftime("%a %Y-%m-%d %H:%M:%S %Z")
        rows.add(there, text.clock(one, utc=utc), text.when(one, here))
    output.show(rows)


# -- changing ----------------------------------------------------------------------------------------------------------


@schedule.command
async def put(
    name: str,
    workflow: str,
    *args: TypedArgument,
    cron: str | None = None,
    every: str | None = None,
    offset: str | None = None,
    at: str | None = None,
    zone: str | None = None,
    skip_day: SkipDays = None,
    overlap: Overlap = "skip",
    limit: int | None = None,
    catch_up: str | None = None,
    jitter: str | None = None,
    stop_after: int | None = None,
    input: str | None = None,
    attribute: Attributes = None,
    deadline: str | None = None,
    utc: Utc = False,
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Make a schedule of this name, or change it.

    It says when with one of --cron, --every and --at. Rules that are not given
    are those of a new schedule.

    Parameters
    ----------
    name
        The schedule; the keys of its processes begin with it.
    workflow
        What it starts, and where that is defined: shop:order, or just shop if that module defines one workflow.
    args
        The workflow's arguments; each is read as JSON, or else as text.
    cron
        Minute, hour, day, month and weekday, as in "0 3 * * *", perhaps after the second; or @daily.
    every
        So often, counted from 1970 in UTC: 90s, 15m, 2h, 7d.
    offset
        So much later than --every says.
    at
        Once, at this time: 2026-11-25T03:00Z.
    zone
        The time zone whose clocks --cron goes by: Europe/Berlin. Default: UTC.
    skip_day
        A day on which --cron does not come: 2026-12-25; may be given several times.
    overlap
        While the one before runs: skip this one, queue it, cancel the one before, or allow both.
    limit
        How many may run at once before --overlap counts. Default: 1.
    catch_up
        An occurrence that is later than this, and than --jitter allows, is missed. Default: 1d.
    jitter
        Put each occurrence off by a time of its own, shorter than this.
    stop_after
        Pause after so many failed processes in a row.
    input
        All arguments at once, as a JSON array (by place) or object (by name).
    attribute
        A search attribute of its processes, as name=value; may be given several times.
    deadline
        End a process as failed if it is not finished so long after its start: 15m, 2h, 7d.
    """
    made = _schedule(
        cron, _seconds(every=every, offset=offset, catch_up=catch_up, jitter=jitter), at, zone,
        overlap=overlap, limit=limit, stop_after=stop_after, skip_days=_days(skip_day),
    )  # fmt: skip
    flow = the_workflow(workflow)
    async with connected(url, registry=Registry(flow)) as engine:
        by_place, by_name = typed_input(flow, args, input)
        options = flow.options(
            deadline=None if deadline is None else text.seconds_of(deadline), attributes=attributes_of(attribute)
        )
        await engine.schedules.put(name, made, options, *by_place, **by_name)
        times, first = in_words(made.plan.timetable), next(iter(made.next()), None)
        if json:
            output.show_json({"name": name, "workflow": flow.name, "times": times, "next": first})
        else:
            told = "" if first is None else f"; next {text.clock(first, utc=utc)}"
            say(f"schedule {name}: starts {flow.name}, {times}{told}")
        await _warn_if_unheard(engine)


def _seconds(**typed: str | None) -> dict[str, Any]:
    """The durations that are given, in seconds; raises InvalidInput."""
    return {name: text.seconds_of(given) for name, given in typed.items() if given is not None}


def _schedule(
    cron: str | None, durations: Mapping[str, Any], at: str | None, zone: str | None, **rules: Any
) -> Schedule:
    """The schedule that the options describe; raises InvalidInput."""
    if (cron is not None) + ("every" in durations) + (at is not None) != 1:
        raise InvalidInput("a schedule says when with one of --cron, --every and --at. Give exactly one of them.")
    if zone is not None and cron is None:
        raise InvalidInput("--zone is for --cron. Leave it out: --every counts in UTC, and --at says its own zone.")
    if rules["skip_days"] and cron is None:
        raise InvalidInput("--skip-day is for --cron. Leave it out, or write the times as a cron expression.")
    if "offset" in durations and "every" not in durations:
        raise InvalidInput("--offset is for --every. Give both, or leave it out.")
    once = None if at is None else _time(at)
    try:
        return Schedule(cron, at=once, zone=zone or "UTC", **durations, **rules)
    except DefinitionError as error:
        raise InvalidInput(str(error)) from None


def _days(given: list[str] | None) -> list[date]:
    """Typed dates; raises InvalidInput."""
    try:
        return [date.fromisoformat(one) for one in given or ()]
    except ValueError:
        raise InvalidInput(f"--skip-day {' '.join(given or ())!r:.60} is not a date; write 2026-12-25") from None


def _time(given: str) -> datetime:
    """A typed time that says its zone; raises InvalidInput."""
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InvalidInput(
            f"{given!r:.40} is not a time with a zone; write 2026-11-25T03:00Z or 2026-11-25T03:00+01:00"
        )
    if not FIRST_YEAR <= found.year < LAST_YEAR:
        raise InvalidInput(f"{given!r:.40} is too far away; write a time from {FIRST_YEAR} to {LAST_YEAR - 1}")
    return found


@schedule.command
async def pause(name: str, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Start nothing more until it is resumed; what runs goes on.

    Parameters
    ----------
    name
        The schedule.
    """
    async with connected(url) as engine:
        await engine.schedules.handle(name).pause(who=who or user(), why=why, origin=ORIGIN)
        await _told(engine, name, "asked to pause", json=json)


@schedule.command
async def resume(name: str, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Go on with what comes from now on.

    What came while it paused is not started.

    Parameters
    ----------
    name
        The schedule.
    """
    async with connected(url) as engine:
        await engine.schedules.handle(name).resume(who=who or user(), why=why, origin=ORIGIN)
        await _told(engine, name, "asked to go on", json=json)


@schedule.command
async def rm(name: str, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> None:
    """Remove a schedule; processes that it has started go on.

    Parameters
    ----------
    name
        The schedule.
    """
    async with connected(url) as engine:
        await engine.schedules.handle(name).remove(who=who or user(), why=why, origin=ORIGIN)
        await _told(engine, name, "asked to end; what runs goes on", json=json)


async def _told(engine: Engine, name: str, answer: str, *, json: bool) -> None:
    if json:
        output.show_json({"schedule": escaped(name), "answer": answer})
    else:
        say(f"schedule {name}: {answer}")
    await _warn_if_unheard(engine)


async def _warn_if_unheard(engine: Engine) -> None:
    """Warn on the error output if no worker is alive: workers hear what schedules are told, and start what is due."""
    now = await engine.store.now()
    alive = [worker for worker in await engine.store.workers() if worker.due_at is None or worker.due_at >= now]
    if KIND not in {kind for kind, _ in hosted_by(alive)}:
        complain("no worker is alive that hears schedules; this takes effect once one runs: `perdure worker`")


Timeout = Annotated[str | None, Parameter(name="--timeout", help="Wait no longer than this for a worker: 90s, 15m.")]


@schedule.command
async def trigger(
    name: str, *, timeout: Timeout = None, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL
) -> int:
    """Start a process now, whatever else runs, and print its id.

    It waits until a worker has started the process.

    Parameters
    ----------
    name
        The schedule; one that pauses starts it too.
    """
    seconds = None if timeout is None else text.seconds_of(timeout)
    async with connected(url) as engine:
        one = engine.schedules.handle(name)
        await one.status()
        await _warn_if_unheard(engine)
        try:
            started = await one.trigger(timeout=seconds, who=who or user(), why=why, origin=ORIGIN)
        except TimeoutError:
            return _unanswered(name, f"{timeout}")
    if json:
        output.show_json({"schedule": escaped(name), "id": started.id})
    else:
        print(started.id)
    return exit_code.DONE


@schedule.command
async def backfill(
    name: str,
    start: Annotated[str, Parameter(name="from")],
    end: Annotated[str, Parameter(name="to")],
    *,
    timeout: Timeout = None,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Start the processes of all times from one time up to another.

    Those that were started before are not started again. It waits until a
    worker has started them.

    Parameters
    ----------
    name
        The schedule.
    start
        The first time: 2026-11-20T00:00Z.
    end
        The last time: 2026-11-25T00:00Z.
    """
    seconds = None if timeout is None else text.seconds_of(timeout)
    first, last = _time(start), _time(end)
    async with connected(url) as engine:
        one = engine.schedules.handle(name)
        await one.status()
        await _warn_if_unheard(engine)
        try:
            count = await one.backfill(first, last, timeout=seconds, who=who or user(), why=why, origin=ORIGIN)
        except TimeoutError:
            return _unanswered(name, f"{timeout}")
    if json:
        output.show_json({"schedule": escaped(name), "count": count})
    else:
        say(f"schedule {name}: {count:,} process{'' if count == 1 else 'es'} for that time")
    return exit_code.DONE


def _unanswered(name: str, timeout: str) -> int:
    complain(
        f"no worker has answered for schedule {name} within {timeout}. What you have asked for is still done once one "
        "runs: do not ask again; `perdure workers` lists those that are alive"
    )
    return exit_code.FAILED
