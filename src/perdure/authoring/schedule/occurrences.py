"""The rounds of a schedule: steps that look which occurrences have come, and start their processes.

A step may run twice: an occurrence's key is made of the schedule's name and its instant, so its process is started
once. Which processes have ended is looked at in a step of its own: so a round that runs again decides as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from perdure import limits
from perdure.authoring.attempt import attempt
from perdure.authoring.registry import Registry
from perdure.authoring.schedule.definition import TIME_PARAMETER, Plan, iso
from perdure.authoring.schedule.timetable import spread
from perdure.authoring.step import step
from perdure.authoring.workflow import Workflow
from perdure.clock import microseconds
from perdure.errors import ProcessNotFound
from perdure.futures import OnAnswer, asked
from perdure.kernel import payload
from perdure.kernel.commit import Start, StartAnswer, StartVerdict
from perdure.kernel.names import id_bytes, id_text
from perdure.kernel.process import DEFAULT_PRIORITY, FINAL, Process, Status
from perdure.kernel.retry import Retry
from perdure.store.base import Search, Store


class Target(Struct, frozen=True):
    """What a schedule starts: processes of this kind and version, with these arguments.

    ``timed`` says that the workflow is given the instant; ``deadline`` is seconds from the start. ``late`` is started
    instead for what comes late. The context that they carry stands among the ``attributes``, as in their rows.
    """

    kind: str
    version: str = ""
    args: list[Any] = []
    named: dict[str, Any] = {}
    timed: bool = False
    deadline: float | None = None
    attributes: dict[str, Any] = {}
    priority: int = DEFAULT_PRIORITY
    late: Target | None = None


class Occurrence(Struct, frozen=True):
    """A process that a schedule has started, for which instant, and whether the schedule has asked it to cancel."""

    process: str
    at: int
    cancelled: bool = False


class Standing(Struct, frozen=True):
    """How far a schedule has come: instants up to ``cursor`` are behind it, in microseconds.

    ``running`` have not ended when it looked last, ``waiting`` are the instants of occurrences that are queued. The
    last ``failures`` processes to end have failed. ``due`` is when to look again.
    """

    cursor: int
    running: list[Occurrence] = []
    waiting: list[int] = []
    failures: int = 0
    due: int | None = None


class Ended(Struct, frozen=True):
    """A process that has ended since it was looked at last, and whether it has ``failed``, completed or neither."""

    process: str
    failed: bool | None = None


class Round(Struct, frozen=True):
    """What a schedule has to do ``now``: ``at_once`` are instants that are started whatever else runs."""

    name: str
    plan: Plan
    target: Target
    standing: Standing
    now: int
    ended: list[Ended] = []
    at_once: list[int] = []
    paused: bool = False


class RoundReport(Struct, frozen=True):
    """What a round has done: how many occurrences were left out (``skipped``), and how many came too late (``missed``).

    ``stop`` says why the schedule must pause, if it must.
    """

    standing: Standing
    started: list[Occurrence] = field(default_factory=list)
    skipped: int = 0
    missed: int = 0
    stop: str = ""


class StartedProcess(Protocol):
    """A process, as the engine below gives it."""

    async def cancel(self, *, who: str = "", why: str = "", origin: str = "client") -> Any:
        """Ask it to cancel."""


class StartDoor(Protocol):
    """What stores new processes, many in one transaction."""

    def start(self, start: Start, answered: OnAnswer) -> None:
        """Store a new process, or learn who has its key; ``answered`` gets the answer."""

    async def reached(self, instant: int) -> None:
        """Wait until the store's time has surely come to this instant."""


class StartingWorker(Protocol):
    """The worker of the engine, which may run what it starts from the beginning: no claim, no replay."""

    def start_repeated(self, process: Process, workflow: Workflow[Any, Any]) -> Awaitable[StartAnswer] | None:
        """Start a process that the worker owns if its row is new; None if the worker does not take it."""


class StartingEngine(Protocol):
    """The engine whose worker runs the step, as far as it is needed here."""

    store: Store
    doors: StartDoor
    local: StartingWorker
    registry: Registry

    def process(self, process: str) -> StartedProcess:
        """The handle of a process."""


def key_of(name: str, instant: int) -> str:
    """The key of an occurrence: ``nightly/2026-11-25T03:00:00Z``."""
    return f"{name}/{iso(instant)}"


_UNTIL_IT_SUCCEEDS = Retry(attempts=1_000_000, cap=limits.SCHEDULE_RETRY_SECONDS, budget=None)


@step(name="perdure/look", retry=_UNTIL_IT_SUCCEEDS)
async def look(processes: list[str]) -> list[Ended]:
    """Which of these have ended."""
    store: Store = attempt().engine.store
    known: dict[str, Status] = {}
    for first in range(0, len(processes), limits.LIST_ROWS):
        ids = tuple(map(id_bytes, processes[first : first + limits.LIST_ROWS]))
        known.update({id_text(row.id): row.status for row in await store.search(Search(ids=ids, limit=len(ids)))})
    over = {one: known.get(one, Status.CANCELLED) for one in processes}  # what is gone has been removed
    return [Ended(one, _OUTCOME.get(status)) for one, status in over.items() if status in FINAL]


_OUTCOME = {Status.FAILED: True, Status.COMPLETED: False}


@step(name="perdure/round", retry=_UNTIL_IT_SUCCEEDS)
async def go_round(round: Round) -> RoundReport:
    """Start what has come. It does the same whenever it runs: what the round says is all that it depends on."""
    engine: StartingEngine = attempt().engine
    await engine.doors.reached(round.now)  # a start carries no time before which the store refuses it, as a timer does
    return await _Going(round, engine).go()


class _Going:
    """One round under way."""

    def __init__(self, round: Round, engine: StartingEngine) -> None:
        self._round = round
        self._plan = round.plan
        self._engine = engine
        self._failures = round.standing.failures
        self._running = self._still_running()
        self._started: list[Occurrence] = []
        self._skipped = 0
        self._missed = 0

    async def go(self) -> RoundReport:
        standing = self._round.standing
        stop = self._must_stop()
        if stop or self._round.paused:
            self._skipped += len(standing.waiting)
            await self._begin(self._round.at_once)
            rest = replace(standing, running=self._tracked(), failures=self._failures, waiting=[], due=None)
            return RoundReport(rest, self._started, self._skipped, self._missed, stop)
        come, cursor, more = self._come(standing.cursor)
        waiting = await self._start([*standing.waiting, *come], more)
        await self._begin(self._round.at_once)
        due = self._round.now if more else self._next(cursor, waiting)
        after = Standing(cursor, self._tracked(), waiting, self._failures, due)
        return RoundReport(after, self._started, self._skipped, self._missed)

    # -- those before --------------------------------------------------------------------------------------------------

    def _still_running(self) -> list[Occurrence]:
        """Those that have not ended, in the order of their instants; failures of the others in a row are counted."""
        ended = {one.process: one for one in self._round.ended}
        still: list[Occurrence] = []
        for one in sorted(self._round.standing.running, key=lambda one: one.at):
            if one.process not in ended:
                still.append(one)
            elif ended[one.process].failed:
                self._failures += 1
            elif ended[one.process].failed is False:
                self._failures = 0
        return still

    def _must_stop(self) -> str:
        most = self._plan.stop_after
        if most is None or self._failures < most or self._round.paused:
            return ""
        return f"the last {self._failures} processes have failed"

    def _tracked(self) -> list[Occurrence]:
        """Those whose end matters for what comes: no more than the next round can be given, the last ones.

        With ``overlap="allow"`` there may be any number, and with ``"cancel"`` any number that do not end although they
        were asked to: these matter only for the failures in a row.
        """
        plan, most = self._plan, limits.SCHEDULE_STARTED_RECORDS
        if plan.overlap == "allow":
            return [] if plan.stop_after is None else self._running[-most:]
        forgotten = {one.process for one in [one for one in self._running if one.cancelled][:-most]}
        return [one for one in self._running if one.process not in forgotten][-limits.SCHEDULE_RUNNING_RECORDS :]

    # -- what has come -------------------------------------------------------------------------------------------------

    def _come(self, cursor: int) -> tuple[list[int], int, bool]:
        """The instants that have come, the last of them, and whether there are more than one round takes."""
        now, plan, name = self._round.now, self._plan, self._round.name
        # Occurrences begin in order, so one may wait for an earlier one: it begins later than its own jitter says, but
        # not later than the bound of all.
        edge = now - max(plan.catch_up, microseconds(limits.SCHEDULE_GRACE_SECONDS)) - plan.jitter
        if cursor < edge:
            self._missed = sum(1 for _ in islice(plan.timetable.between(cursor, edge), limits.SCHEDULE_MISSED_RECORDS))
            cursor = edge
        come: list[int] = []
        for instant in plan.timetable.between(cursor, now):
            if instant + spread(name, instant, plan.jitter) > now:
                break
            if len(come) == limits.SCHEDULE_STARTED_RECORDS:
                return come, cursor, True
            come.append(instant)
            cursor = instant
        return come, cursor, False

    def _next(self, cursor: int, waiting: Sequence[int]) -> int | None:
        following = next(self._plan.timetable.after(cursor), None)
        due = None if following is None else following + spread(self._round.name, following, self._plan.jitter)
        if waiting:
            look = self._round.now + microseconds(limits.SCHEDULE_LOOK_SECONDS)
            due = look if due is None else min(due, look)
        return due

    # -- starting ------------------------------------------------------------------------------------------------------

    async def _start(self, wanted: Sequence[int], more: bool) -> list[int]:
        """Start what may be started now; the answer are those that wait. Whether ``more`` have come matters too."""
        plan = self._plan
        if plan.overlap == "cancel":
            return await self._start_last(wanted, more)
        free = len(wanted) if plan.overlap == "allow" else max(0, plan.limit - len(self._running))
        at_once, others = list(wanted[:free]), list(wanted[free:])
        await self._begin(at_once)
        waiting = others[: limits.SCHEDULE_STARTED_RECORDS] if plan.overlap == "queue" else []
        self._skipped += len(others) - len(waiting)
        return waiting

    async def _start_last(self, wanted: Sequence[int], more: bool) -> list[int]:
        """Start the last of these, as many as may run, in the place of others; if ``more`` have come they wait."""
        limit = self._plan.limit
        last = list(wanted[-limit:])
        self._skipped += len(wanted) - len(last)
        if more and limit < limits.SCHEDULE_STARTED_RECORDS:
            return last
        if last:
            await self._cancel_down_to(limit - len(last))
            await self._begin(last)
        return []

    async def _cancel_down_to(self, most: int) -> None:
        """Ask the oldest to cancel, each once, until so many are left that were not asked."""
        unasked = [one.process for one in self._running if not one.cancelled]
        asked = unasked[: max(0, len(unasked) - most)]
        for process in asked:
            with suppress(ProcessNotFound):  # it has ended since it was looked at, and was removed
                await self._engine.process(process).cancel(
                    who=f"schedule {self._round.name}", why="the next one has come", origin="schedule"
                )
        # If we die here they are asked once more: the round runs again and decides the same.
        self._running = [replace(one, cancelled=one.cancelled or one.process in asked) for one in self._running]

    async def _begin(self, instants: Iterable[int]) -> None:
        """Start the processes of these instants, each once, but for those that were started before this round."""
        begun = [one for one in await asyncio.gather(*map(self._begin_one, instants)) if one is not None]
        self._started += begun
        self._running += begun

    async def _target_of(self, instant: int) -> Target | None:
        """What is started for an instant; None if its process was started as the other one of the two before.

        A round that runs again decides the same, and rounds come one after another: so no instant has two processes.
        """
        round, target = self._round, self._round.target
        if target.late is None or self._plan.late_after is None:
            return target
        late = round.now - instant - self._plan.jitter > self._plan.late_after  # for the bound of all, see `_come`
        chosen, other = (target.late, target) if late and instant not in round.at_once else (target, target.late)
        key = key_of(round.name, instant)
        return None if await self._engine.store.search(Search(kind=other.kind, key=key, limit=1)) else chosen

    async def _begin_one(self, instant: int) -> Occurrence | None:
        name = self._round.name
        if (target := await self._target_of(instant)) is None:
            return None
        named = {**target.named, TIME_PARAMETER: iso(instant)} if target.timed else target.named
        attributes = {**target.attributes, "schedule": name, TIME_PARAMETER: iso(instant)}
        process = Process(
            self._id(instant),
            target.kind,
            key_of(name, instant),
            payload.encode({"": target.args, **named} if named else target.args, what="the arguments of an occurrence"),
            code=target.version,
            deadline=None if target.deadline is None else self._round.now + microseconds(target.deadline),
            attributes=payload.encode_attributes(attributes),
            priority=target.priority,
        )
        answer = await self._store(process)
        return Occurrence(id_text(process.id), instant) if answer.id == process.id else None

    async def _store(self, process: Process) -> StartAnswer:
        """Store a process: with its first turn, if this worker hosts it, has room, and has not tried before."""
        engine = self._engine
        workflow = engine.registry.versions.get((process.kind, process.code))
        eager = None if workflow is None or attempt().number > 1 else engine.local.start_repeated(process, workflow)
        answer: StartAnswer | None = None if eager is None else await eager
        if answer is None or answer.verdict is StartVerdict.REFUSED:  # that of a worker which others have ended
            answer = await asked(engine.doors.start, Start(process))
        return answer

    def _id(self, instant: int) -> bytes:
        """The id of the process for that instant: the same at each attempt of this round, and no other round's."""
        time = (self._round.now // 1000).to_bytes(6, "big")
        rest = blake2b(f"{attempt().idempotency_key} {instant}".encode(), digest_size=10).digest()
        return bytes((*time, 0x70 | rest[0] & 0x0F, rest[1], 0x80 | rest[2] & 0x3F, *rest[3:]))
