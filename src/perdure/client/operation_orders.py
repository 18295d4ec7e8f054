"""The orders of an operation: its processes are selected, commanded once each, and looked back at."""

from __future__ import annotations

import asyncio
import builtins
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct, json

from perdure import limits
from perdure.authoring.operation.machine import KIND, OperationMachine
from perdure.authoring.operation.plan import Carried, OperationPlan, OperationStatus, Selected, Window
from perdure.client import validation
from perdure.client.finding.failures import FAILED
from perdure.client.finding.fields import Candidate
from perdure.client.finding.finder import Finder
from perdure.client.handle import Handle
from perdure.client.operation_verb import VERBS, ends
from perdure.client.parts import ClientParts
from perdure.clock import microseconds
from perdure.errors import (
    BadRecord,
    DamagedRecord,
    IllegalMove,
    NewerRecord,
    PerdureError,
    ProcessNotFound,
    StoreError,
)
from perdure.kernel.checkpoint import has_begun
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, EventType
from perdure.kernel.inverse import ordered_by, taken_back
from perdure.kernel.names import id_bytes, id_text
from perdure.kernel.process import Process, Status
from perdure.kernel.run import opening_of
from perdure.limits import LIST_ROWS
from perdure.store.base import Search

if TYPE_CHECKING:
    from perdure.client.client import Client

AT_ONCE = 200
"""How many processes of a portion are commanded side by side."""
EVENTS = 100
"""How many of a process's last events are looked at for a command of the operation."""
OF_RECORDS = (BadRecord, DamagedRecord, NewerRecord)
"""Errors of the store that are about the one process, and not about the store."""


SELECTED = "perdure/select"
"""The step whose results, in an operation's history, are the ids of the processes that it was to command."""
RUNS = 20
"""In how many of a process's last runs a command of the operation is looked for."""


class _Changed(IllegalMove):
    """The process has changed since the operation began."""


class _Tried(PerdureError):
    """Nothing was written: the command would be carried out, and tell ``children``, and ``repeat`` steps."""

    def __init__(self, children: int, repeated: int) -> None:
        super().__init__("it was only tried")
        self.children = children
        self.repeated = repeated


class _Judged(Struct):
    """What has become of a command to one process: ``why`` it was not carried out, and whether it ``failed``."""

    why: str = ""
    failed: bool = False
    tried: _Tried | None = None


class _Ordered(Handle[Any]):
    """A handle whose commands are carried out only if the process has not changed since; or are only tried.

    The row was read with those of many others at ``now``: it is read again only if it has changed.
    """

    __slots__ = ("dry", "frozen", "now", "row")

    def __init__(self, parts: ClientParts, row: Process, now: int, frozen: int, *, dry: bool) -> None:
        super().__init__(parts, row.id, known=False)
        self.row = row
        self.now = now
        self.frozen = frozen
        self.dry = dry

    async def _order(self, decide: Any, *, read: bool = True) -> None:
        def judged(row: Process, history: Sequence[Event], now: int) -> Any:
            self._refuse_changed(row)
            commit = decide(row, history, now)
            if self.dry:
                raise _Tried(len(commit.sends), _repeated(row, history, commit))
            return commit

        row = self.row
        events = row.events if read else 0
        history = await self._parts.store.history(row.id, row.run, limit=events) if events else ()
        if not await self._carried_out(row, history, judged, self.now):
            await super()._order(judged, read=read)

    async def _thin_out(self, row: Process) -> None:
        """Remove the former runs of a process that goes: not of one that is only tried, or has changed."""
        self._refuse_changed(row)
        if not self.dry:
            await super()._thin_out(row)

    def _refuse_changed(self, row: Process) -> None:
        if row.changed_at > self.frozen:
            raise _Changed("it has changed since the operation began")

    async def take_back(self, plan: OperationPlan, said: Mapping[str, str]) -> None:
        """Take back what the operation ``plan.undoes`` has done to it; raises IllegalMove, which says why not."""
        sender, idle = validation.sender(**said), microseconds(limits.IDLE_CHECK_SECONDS)
        input = await self._former_input() if plan.undoes_verb == "edit-input" else b""

        def decide(row: Process, history: Sequence[Event], now: int) -> Commit:
            origin = _origin(plan.undoes)
            return taken_back(row, history, plan.undoes_verb, origin, sender, now=now, idle_at=now + idle, input=input)

        await self._order(decide)

    async def _former_input(self) -> bytes:
        """What the process had before its input was edited: that of the run before, or that of its start."""
        row = self.row
        before = opening_of(await self._parts.store.history(row.id, row.run - 1, limit=1) if row.run > 1 else ())
        return bytes(before.input) or row.input


def _repeated(row: Process, history: Sequence[Event], commit: Commit) -> int:
    """How many steps that were done a command would have run again."""
    done = EventType.STEP_COMPLETED
    if commit.after.run == row.run:
        return 0
    kept = sum(event.type in (done, EventType.RESULT_KEPT) for event in commit.events)
    return max(0, sum(event.type is done for event in history) - kept)


class OperationOrders:
    """What the process of an operation asks of the engine that runs it: to count, select, command and look back."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def planned(self, plan: OperationPlan, window: Window) -> int:
        """How many processes fit the plan and have changed in this window."""
        if plan.undoes:
            return sum([len(chosen.processes) async for chosen in self._undone(plan, None)])
        number = 0
        async for page in self._finder(plan, None).candidates():
            number += sum(window.holds(one.row.changed_at) for one in page)
        return number

    async def select(
        self, plan: OperationPlan, operation: str, window: Window, before: str | None, most: int
    ) -> Selected:
        """The next processes that fit the plan and have changed in this window; or the operation that goes first."""
        if waits := await self._goes_first(plan, operation):
            return Selected([], before, waits)
        if plan.undoes:
            return await anext(self._undone(plan, before), Selected([], None))
        found: builtins.list[Candidate] = []
        async for page in self._finder(plan, before).candidates():
            found += [one for one in page if window.holds(one.row.changed_at)]
            if len(found) >= most:
                chosen = [id_text(one.row.id) for one in found[:most]]
                return Selected(chosen, chosen[-1])
        return Selected([id_text(one.row.id) for one in found], None)

    async def carry_out(
        self, plan: OperationPlan, operation: str, window: Window, processes: builtins.list[str]
    ) -> Carried:
        """Give each its command, once: one that has it already, from a try that was cut off, counts as done."""
        ids = tuple(map(id_bytes, processes))
        rows = await self._client.store.search(Search(ids=ids, limit=len(ids)))
        judged = await self._each(plan, operation, window, rows)
        left_out = Counter(one.why for one in judged if one.why and not one.failed)
        failed = Counter(one.why for one in judged if one.failed)
        done = len(rows) - left_out.total() - failed.total()
        gone = len(ids) - len(rows)
        if plan.verb == "remove":
            done += gone  # by us, before the worker of this portion died; or by another, which comes to the same
        elif gone:
            left_out["it was removed"] += gone
        return Carried(done, dict(left_out), dict(failed))

    async def relapsed(self, plan: OperationPlan, operation: str, began: int) -> int:
        """How many have failed or are broken, and fit the query, since the operation has commanded them."""
        number = 0
        if ends(plan):
            return number
        async for page in self._finder(plan, None).candidates():
            changed = [one.row for one in page if one.row.changed_at > began and one.row.status in FAILED]
            for some in _portions(changed, AT_ONCE):
                number += sum(await asyncio.gather(*(self._commanded(row, operation) for row in some)))
        return number

    async def _goes_first(self, plan: OperationPlan, operation: str) -> str:
        """The operation with a lower number of priority that has something to do now, in words; empty if none has."""
        if not plan.priority:
            return ""
        now = await self._client.store.now()
        search = Search(kind=KIND, statuses=(Status.RUNNING,), limit=LIST_ROWS)
        for row in await self._client.store.search(search):
            busy = row.owner is not None or (row.due_at is not None and row.due_at <= now and not row.reminder)
            outcome = outcome_of(row)
            at_it = outcome is None or (outcome.phase in ("canary", "running") and not outcome.paused)
            if row.priority < plan.priority and busy and at_it and id_text(row.id) != operation:
                return f"operation {id_text(row.id)} goes first: its priority is {row.priority}, here {plan.priority}"
        return ""

    async def _all(self, plan: OperationPlan) -> AsyncIterator[Sequence[Process]]:
        """All processes that the plan is for, portion by portion."""
        if plan.undoes:
            async for chosen in self._undone(plan, None):
                ids = tuple(map(id_bytes, chosen.processes))
                yield await self._client.store.search(Search(ids=ids, limit=max(len(ids), 1)))
        else:
            async for page in self._finder(plan, None).candidates():
                yield [one.row for one in page]

    async def _undone(self, plan: OperationPlan, before: str | None) -> AsyncIterator[Selected]:
        """The portions of the operation that is taken back: its history names the processes of each.

        ``before`` of a portion is the run and the number of its event, behind which the next one is looked for.
        """
        store, row = self._client.store, await self._client.row(plan.undoes)
        run, number = (1, 0) if before is None else map(int, before.split(":"))
        while run <= row.run:
            types = (EventType.STEP_COMPLETED,)
            found = await store.history(row.id, run, after=number, limit=1, types=types, names=(SELECTED,))
            for event in found:
                number = event.number
                chosen = json.decode(event.payload or b"{}", type=Selected)
                if chosen.processes:
                    yield Selected(chosen.processes, f"{run}:{number}")
            if not found:
                run, number = run + 1, 0

    def _finder(self, plan: OperationPlan, before: str | None) -> Finder:
        search = Search(tasks=True, before_id=None if before is None else id_bytes(before))
        return Finder(self._client.store, search, plan.where)

    async def _each(
        self, plan: OperationPlan, operation: str, window: Window, rows: Sequence[Process], *, dry: bool = False
    ) -> builtins.list[_Judged]:
        """What has become of the command to each. Raises StoreError if the store cannot be asked."""
        told: builtins.list[_Judged] = []
        for some in _portions(rows, AT_ONCE):
            now = await self._client.store.now()
            ordered = (_Ordered(self._client.parts, row, now, window.until, dry=dry) for row in some)
            answers = await asyncio.gather(
                *(self._one(plan, operation, window, handle) for handle in ordered), return_exceptions=True
            )
            for answer in answers:  # all have ended: what is tried again meets no command that is still under way
                if isinstance(answer, BaseException):
                    raise answer
                told.append(answer)
        return told

    async def _one(self, plan: OperationPlan, operation: str, window: Window, handle: _Ordered) -> _Judged:
        said = {"who": plan.who, "why": plan.why, "origin": _origin(operation)}
        try:
            if not window.first and await self._commanded(handle.row, operation):
                return _Judged("it was commanded before")
            await (handle.take_back(plan, said) if plan.undoes else VERBS[plan.verb].command(handle, plan, said))
        except _Tried as tried:
            return _Judged(tried=tried)
        except _Changed as why:
            return await self._moved_on(plan, operation, handle, str(why))
        except ProcessNotFound:
            return _Judged() if plan.verb == "remove" else _Judged("it was removed")
        except IllegalMove as why:
            return _Judged(str(why))
        except PerdureError as why:
            if isinstance(why, StoreError) and not isinstance(why, OF_RECORDS):
                raise
            return _Judged(str(why), failed=True)
        return _Judged()

    async def _moved_on(self, plan: OperationPlan, operation: str, handle: _Ordered, why: str) -> _Judged:
        """A process that has changed: by this operation's own command, in a try that was cut off, or otherwise."""
        try:
            row = await self._client.row(handle.id_bytes)
        except ProcessNotFound:
            return _Judged() if plan.verb == "remove" else _Judged("it was removed")
        return _Judged() if operation and await self._commanded(row, operation) else _Judged(why)

    async def _commanded(self, row: Process, operation: str) -> bool:
        """Whether one of the last runs of a process has a command of this operation."""
        origin, store = _origin(operation), self._client.store
        for run in range(row.run, max(0, row.run - RUNS), -1):
            first = await store.history(row.id, run, limit=1)
            last = await store.history(row.id, run, limit=EVENTS, backward=True)
            if any(ordered_by(event, origin) for event in (*first, *last)):
                return True
        return False


def outcome_of(row: Process) -> OperationStatus | None:
    """What the row of an operation says, if it says something yet."""
    return None if not has_begun(row.state) else json.decode(row.state or b"{}", type=OperationStatus)


def plan_of(row: Process) -> OperationPlan:
    """The plan of an operation, from the input of its process."""
    (plan, _), _ = OperationMachine.__machine__.shape.decode(row.input)
    return plan  # type: ignore[no-any-return]


def _origin(operation: str) -> str:
    return f"operation {operation}"


def _portions(every: Sequence[Any], size: int) -> Any:
    rest = iter(every)
    return iter(lambda: tuple(islice(rest, size)), ())
