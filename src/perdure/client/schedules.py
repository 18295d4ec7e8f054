"""Schedules as people see and set them: what is started when, and what has become of it."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec

from msgspec import json, structs

from perdure import limits
from perdure.authoring.schedule.definition import TIME_PARAMETER, Plan, Schedule, in_words, instant_of, iso, moment
from perdure.authoring.schedule.machine import KIND, Removed, ScheduleMachine
from perdure.authoring.schedule.occurrences import Target, key_of
from perdure.authoring.schedule.timetable import Timetable
from perdure.authoring.start import NamedWorkflow, Startable
from perdure.authoring.workflow import Workflow
from perdure.client import validation
from perdure.client.schedule_row import kept, made, stands
from perdure.client.whole_rows import whole
from perdure.clock import SECOND, Duration, in_seconds
from perdure.errors import (
    CallRefused,
    CallUnanswered,
    DefinitionError,
    IllegalMove,
    InboxFull,
    InvalidInput,
    KeyConflict,
    PerdureError,
    ProcessNotFound,
    ScheduleNotFound,
    UnknownKind,
)
from perdure.kernel import context
from perdure.kernel.failure import Failure
from perdure.kernel.message import SendVerdict
from perdure.kernel.names import check_key, check_name, id_text
from perdure.kernel.plain import shown
from perdure.kernel.process import Process, Status, merged
from perdure.logs import logger
from perdure.store.base import Search

if TYPE_CHECKING:
    from perdure.client.client import Client
    from perdure.client.handle import Handle

P = ParamSpec("P")
_FAR = 4_000_000_000_000_001
"""An instant whose text is as long as that of any other."""


@dataclass(frozen=True, slots=True)
class OccurrenceView:
    """A process that a schedule has started: its id, and the instant that it was started for."""

    process: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """One schedule: what it starts and when, how far it has come, and why it pauses, if it does.

    ``times`` says when in words, ``next`` is the next time in UTC without jitter (None if none comes, or if it pauses
    or cannot go on). ``running`` counts those of its processes that it follows and that had not ended when it looked
    last, ``waiting`` the occurrences that are queued. ``started``, ``skipped`` and ``missed`` count occurrences since
    it was made. ``skip_days`` are dates on which it does not come. ``limit``, ``catch_up``, ``jitter``, ``stop_after``
    and ``deadline`` are its rules, durations in seconds; what begins more than ``late_after`` after its time and the
    jitter is started as the workflow ``late`` instead. ``args``, ``named``, ``attributes`` and ``context`` are what its
    processes get, ``timed`` says that they get the instant too. ``process`` is the id of the schedule's own process,
    ``status`` that process's status.
    """

    name: str
    workflow: str
    version: str
    times: str
    skip_days: builtins.list[date]
    overlap: str
    limit: int | None
    catch_up: float
    jitter: float
    stop_after: int | None
    late_after: float | None
    late: str
    args: builtins.list[Any]
    named: dict[str, Any]
    timed: bool
    attributes: dict[str, Any]
    context: dict[str, Any] | None
    deadline: float | None
    next: datetime | None
    paused: str
    running: int
    waiting: int
    started: int
    skipped: int
    missed: int
    recent: builtins.list[OccurrenceView]
    process: str
    status: str


class Schedules:
    """The verbs on schedules: ``engine.schedules``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def put(
        self, name: str, schedule: Schedule, workflow: Startable[P, Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> ScheduleHandle:
        """Make a schedule of that name, or change it: from now on it starts this workflow with these arguments.

        Each occurrence is one process, whose key is the schedule's name and the instant:
        ``nightly/2026-11-25T03:00:00Z``. A parameter ``scheduled_at: datetime`` that is not given here gets the
        instant; options of the workflow may be a deadline, a priority, attributes and a context. A worker must run;
        any worker will do. Raises InvalidInput, UnknownKind, PayloadTooLarge, and IllegalMove if a person has ended the
        process of a schedule of that name.
        """
        validation.outside_a_turn()
        check_name(name, "the name of the schedule")
        check_key(key_of(name, _FAR), "the key of an occurrence")
        if not isinstance(schedule, Schedule):
            raise InvalidInput(f"{shown(schedule)} is not a schedule. Write Schedule('0 3 * * *'), or every=, or at=.")
        await self._put(name, schedule.plan, await self._targets(schedule, workflow, args, kwargs))
        return self.handle(name)

    async def declare(self, workflow: Workflow[Any, Any], schedule: Schedule) -> None:
        """Put the schedule with which a workflow was defined, under the workflow's name, unless it stands as it is.

        One that cannot be read here, or whose process was ended by a person or takes no more messages, stays as it is,
        and this is logged: the worker has other things to do.
        """
        plan, target = schedule.plan, await self._targets(schedule, workflow, (), {})
        found = await self._client.store.search(Search(kind=KIND, key=workflow.name, limit=1))
        if not found or not stands(found[0], plan, target):
            try:
                await self._put(workflow.name, plan, target)
            except (IllegalMove, InboxFull) as refused:
                logger("worker").warning("the schedule of workflow %r is not kept: %s", workflow.name, refused)

    async def _put(self, name: str, plan: Plan, target: Target) -> None:
        since = await self._client.store.now()
        try:
            handle = await self._client.start(ScheduleMachine.made.options(key=name), name, plan, target, since)
        except KeyConflict:
            handle = await self._client.handle(KIND, name)
        if not handle.created:
            refuse_ended(await handle.signal(ScheduleMachine.put, plan, target, since), name)

    def handle(self, name: str) -> ScheduleHandle:
        """The schedule of that name; nothing is read before one of its verbs is used."""
        return ScheduleHandle(self._client, check_name(name, "the name of the schedule"))

    async def list(self) -> builtins.list[ScheduleView]:
        """All schedules, by name; what cannot be read of one says why, in place of when it comes."""
        found: builtins.list[Process] = []
        page = Search(kind=KIND, limit=limits.LIST_ROWS)
        while rows := await whole(self._client.store, await self._client.store.search(page)):
            found += rows
            page = Search(kind=KIND, limit=limits.LIST_ROWS, before_id=rows[-1].id)
        return sorted((one for one in map(_shown, found) if one is not None), key=lambda one: one.name)

    async def _targets(
        self, schedule: Schedule, workflow: Startable[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Target:
        """What a schedule starts, and what it starts instead for what comes late."""
        target = await self._target(workflow, args, kwargs)
        if schedule.late is None:
            return target
        late = await self._target(schedule.late, args, kwargs)
        if late.kind == target.kind:
            raise InvalidInput(f"late= is {late.kind!r}, which the schedule starts anyway. Give another workflow.")
        return structs.replace(target, late=late)

    async def _target(self, workflow: Startable[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Target:
        flow: Workflow[Any, Any] | NamedWorkflow
        try:
            flow, options = self._client.registry.startable(workflow)
        except UnknownKind as unknown:
            flow, options = await self._client._elsewhere(workflow, unknown)
        for option in ("key", "signal", "delay", "debounce"):
            if getattr(options, option) is not None:
                raise InvalidInput(
                    f"a schedule has no {option}=: each of its processes has a key of its own. Leave it out."
                )
        if options.reply_to is not None:
            raise InvalidInput("a schedule has no reply_to=: its own status tells of its processes. Leave it out.")
        timed = isinstance(flow, Workflow) and flow.shape.leaves_out(TIME_PARAMETER, args, kwargs)
        validation.input(flow, args, {**kwargs, TIME_PARAMETER: moment(_FAR)} if timed else kwargs)
        call = json.decode(NamedWorkflow(flow.name).encode(args, kwargs))
        named: dict[str, Any] = call if isinstance(call, dict) else {"": call}
        positional = named.pop("", [])
        attributes = dict(options.attributes or {})
        told = validation.attributes({**attributes, "schedule": "", TIME_PARAMETER: iso(_FAR)})
        if carried := context.checked(options.context):
            attributes[context.ATTRIBUTE] = carried
            merged(told, attributes)  # raises if there is no room for both
        deadline = flow.deadline
        if options.deadline is not None:
            deadline = validation.duration(options.deadline, "the deadline") / SECOND
        return Target(flow.name, flow.version, positional, named, timed, deadline, attributes, options.priority)


class ScheduleHandle:
    """One schedule by its name: what :meth:`Schedules.put` and :meth:`Schedules.handle` return.

    Every verb but ``status`` is heard by a worker, any worker, and takes effect there. All raise ScheduleNotFound, and
    those that change it IllegalMove if a person has ended its process.
    """

    __slots__ = ("_client", "name")

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name

    def __repr__(self) -> str:
        return f"<ScheduleHandle {self.name}>"

    async def process(self) -> Handle[Any]:
        """The schedule's own process: its history says who has changed it, and when."""
        try:
            return await self._client.handle(KIND, self.name)
        except ProcessNotFound:
            raise self._unknown() from None

    async def status(self) -> ScheduleView:
        """Read the schedule as it is now; raises UnreadablePayload or PayloadError if that cannot be read here."""
        seen = _view(await self._client.row((await self.process()).id))
        if seen is None:
            raise self._unknown()
        return seen

    async def pause(self, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Start nothing more until it is resumed. What runs goes on, and what is queued is left out."""
        await self._tell(ScheduleMachine.pause.name, [why or f"by {who or 'an unnamed user'}"], who, why, origin)

    async def resume(self, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Go on with what comes from now on; what came meanwhile is not started."""
        await self._tell(ScheduleMachine.resume.name, [], who, why, origin)

    async def remove(self, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Remove the schedule; processes that it has started go on. It can be put again under its name."""
        await self._tell(ScheduleMachine.remove.name, [], who, why, origin)

    async def trigger(
        self, *, timeout: Duration | None = None, who: str = "", why: str = "", origin: str = "client"
    ) -> Handle[Any]:
        """Start a process now, also while others run or the schedule pauses, and return its handle.

        At the very microsecond of an occurrence it is the process of that occurrence too.
        Raises TimeoutError if no worker has answered after ``timeout`` seconds (default: never); the process is started
        all the same once one runs. Raises CallRefused or CallUnanswered if the schedule is broken: see its text.
        """
        return self._client.process(await self._ask(ScheduleMachine.trigger.name, [], timeout, who, why, origin))

    async def backfill(
        self, start: datetime, end: datetime, *, timeout: Duration | None = None, who: str = "", why: str = "",
        origin: str = "client",
    ) -> int:  # fmt: skip
        """Start the processes of all instants from ``start`` up to ``end``, whatever else runs; return how many began.

        Those that were started before are not started again. At most 1,000 instants at a time. Raises InvalidInput,
        and TimeoutError as :meth:`trigger` does.
        """
        try:
            first, last = instant_of(start, "start"), instant_of(end, "end")
        except DefinitionError as error:
            raise InvalidInput(str(error)) from None
        if first > last:
            raise InvalidInput(f"start={start} is after end={end}. Give the earlier time first.")
        schedule = await self._kept()
        instants = [*islice(schedule.plan.timetable.between(first - 1, last), limits.SCHEDULE_BACKFILL_RECORDS + 1)]
        if len(instants) > limits.SCHEDULE_BACKFILL_RECORDS:
            most = limits.SCHEDULE_BACKFILL_RECORDS
            raise InvalidInput(f"there are more than {most:,} instants from {start} to {end}. Give a shorter time.")
        return int(await self._ask(ScheduleMachine.backfill.name, [instants], timeout, who, why, origin))

    async def _kept(self) -> ScheduleMachine:
        """What its row says; raises ScheduleNotFound, also if it was removed."""
        found = kept(await self._client.row((await self.process()).id))
        if found is None:
            raise self._unknown()
        return found

    async def _tell(self, name: str, value: builtins.list[Any], who: str, why: str, origin: str) -> None:
        await self._kept()
        verdict = await (await self.process()).signal(name, value, who=who, why=why, origin=origin)
        refuse_ended(verdict, self.name)

    async def _ask(
        self, name: str, value: builtins.list[Any], timeout: Duration | None, who: str, why: str, origin: str
    ) -> Any:
        await self._kept()
        process = await self.process()
        try:
            return await process.call(name, value, timeout=timeout, who=who, why=why, origin=origin)
        except TimeoutError:
            raise TimeoutError(
                f"no worker has answered for schedule {self.name!r} within {in_seconds(timeout):g} s. What was asked "
                "for is done once one runs: do not ask again"
            ) from None
        except (CallRefused, CallUnanswered) as error:
            raise await self._silence(error) from None

    async def _silence(self, error: CallRefused | CallUnanswered) -> PerdureError:
        """Why a schedule has not done what it was asked for: it was removed, ended by a person, or is broken."""
        if isinstance(error, CallRefused) and error.type == Removed.__name__:
            return self._unknown()
        row = await self._client.row((await self.process()).id)
        if row.final:
            return _ended(self.name)
        detail = error.detail if isinstance(error, CallRefused) else Failure.shown(row.error or b"{}").message
        text = (
            f"schedule {self.name!r} is broken: {detail}. What was asked for is done once it goes on: do not ask "
            f"again. Put right what is wrong, then `perdure retry {id_text(row.id)}`"
        )
        if isinstance(error, CallRefused):
            return CallRefused(text, type=error.type, detail=detail)
        return CallUnanswered(text)

    def _unknown(self) -> ScheduleNotFound:
        return ScheduleNotFound(f"there is no schedule {self.name!r}; `perdure schedule ls` lists what there is")


def refuse_ended(verdict: SendVerdict, name: str) -> None:
    """Raise IllegalMove if the process of a schedule has ended: its name is taken, and it hears nothing any more."""
    if verdict is SendVerdict.FINISHED:
        raise _ended(name)


def _ended(name: str) -> IllegalMove:
    return IllegalMove(
        f"the process of schedule {name!r} was ended by a person, and hears nothing any more. Use another name; "
        "to end a schedule, use `perdure schedule rm`"
    )


# -- what a schedule's row says ----------------------------------------------------------------------------------------


def _shown(row: Process) -> ScheduleView | None:
    """The view of a schedule, as far as it can be read."""
    try:
        return _view(row)
    except PerdureError as error:
        nothing = made(row.key or "", Plan(Timetable(at=0)), Target(""), 0)
        return replace(_as_view(row, nothing), times=str(error), paused="it cannot be read", next=None)


def _view(row: Process) -> ScheduleView | None:
    found = kept(row)
    return None if found is None else _as_view(row, found)


def _as_view(row: Process, schedule: ScheduleMachine) -> ScheduleView:
    target = schedule.target or Target("")
    due = (
        None
        if schedule.paused or row.status is not Status.RUNNING
        else next(schedule.plan.timetable.after(schedule.standing.cursor), None)
    )
    return ScheduleView(
        name=schedule.name,
        workflow=target.kind,
        version=target.version,
        times=in_words(schedule.plan.timetable),
        skip_days=list(schedule.plan.timetable.skip_days),
        overlap=schedule.plan.overlap,
        limit=None if schedule.plan.overlap == "allow" else schedule.plan.limit,
        catch_up=schedule.plan.catch_up / SECOND,
        jitter=schedule.plan.jitter / SECOND,
        stop_after=schedule.plan.stop_after,
        late_after=None if schedule.plan.late_after is None else schedule.plan.late_after / SECOND,
        late="" if target.late is None else target.late.kind,
        args=target.args,
        named=target.named,
        timed=target.timed,
        attributes={name: value for name, value in target.attributes.items() if name != context.ATTRIBUTE},
        context=context.read(target.attributes.get(context.ATTRIBUTE)) or None,
        deadline=target.deadline,
        next=None if due is None else moment(due),
        paused=schedule.paused,
        running=len(schedule.standing.running),
        waiting=len(schedule.standing.waiting),
        started=schedule.started,
        skipped=schedule.skipped,
        missed=schedule.missed,
        recent=[OccurrenceView(one.process, moment(one.at)) for one in schedule.recent],
        process=id_text(row.id),
        status=row.status.value,
    )
