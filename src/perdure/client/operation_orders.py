"""The orders of an operation: its processes are selected, commanded once each, and looked back at."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from msgspec import json

from perdure.authoring.operation.machine import KIND
from perdure.authoring.operation.plan import (
    Carried,
    OperationPlan,
    Selected,
    Window,
    limited,
)
from perdure.client.finding.failures import FAILED
from perdure.client.finding.finder import Finder
from perdure.client.operation_row import NOT_BEGUN, NOT_READ, plan_of, told_of
from perdure.client.operation_verb import asks_for_hosts, ends, origin_of
from perdure.client.past_orders import at_rest, commanded
from perdure.client.portion import OperationPortion
from perdure.client.read_ahead import ReadAhead
from perdure.client.unserved import hosted_now
from perdure.client.whole_rows import rows_of, whole
from perdure.kernel.event import EventType
from perdure.kernel.names import id_bytes, id_text
from perdure.kernel.process import Process, Status
from perdure.limits import LIST_ROWS
from perdure.store.base import Search

if TYPE_CHECKING:
    from perdure.client.client import Client

SELECTED = "perdure/select"
"""The step whose results, in an operation's history, are the ids of the processes that it was to command."""


class OperationOrders:
    """What the process of an operation asks of the engine that runs it: to count, select, command and look back."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._read: dict[bytes, Process] = {}
        """The rows of the portion that was selected last: if the same worker commands them, they are not read again."""
        self._ahead = ReadAhead(client.parts.machine.monotonic)

    async def planned(self, plan: OperationPlan, window: Window) -> int:
        """How many processes fit the plan and have changed in this window."""
        if plan.undoes:
            return sum([len(chosen.processes) async for chosen in self._undone(plan)])
        number = 0
        async for page in self._finder(plan, None).every():
            number += sum(window.holds(one.row.changed_at) for one in page)
        return number

    async def select(
        self, plan: OperationPlan, operation: str, window: Window, before: str | None, most: int
    ) -> Selected:
        """The next processes that fit the plan and have changed in this window; or the operation that goes first."""
        self._read = {}
        if waits := await self._goes_first(plan, operation):
            return Selected([], before, waits)
        if plan.undoes:
            return await self._select_undone(plan, before, most)
        found: builtins.list[Process] = []
        finder = self._ahead.take(operation, before) or self._finder(plan, before)
        async for page in finder.candidates():
            found += [one.row for one in page if window.holds(one.row.changed_at)]
            if len(found) >= most:
                return self._selected(plan, operation, found[:most], found[most - 1].id)
            if len(found) * 2 >= most >= LIST_ROWS and finder.behind is not None:
                # else what is left of the next page is read twice
                return self._selected(plan, operation, found, finder.behind)
        return self._selected(plan, operation, found, None)

    def _selected(
        self, plan: OperationPlan, operation: str, found: Sequence[Process], behind: bytes | None
    ) -> Selected:
        """The portion of these rows, which are kept until they are commanded; the next one begins before ``behind``."""
        self._read = {row.id: row for row in found}
        before = None if behind is None else id_text(behind)
        if before is not None and plan.rate is None:
            self._ahead.selected(operation, before, self._finder(plan, before))
        return Selected(list(map(id_text, self._read)), before)

    async def carry_out(
        self, plan: OperationPlan, operation: str, window: Window, processes: builtins.list[str]
    ) -> Carried:
        """Give each its command, once: one that has it already, from a try that was cut off, counts as done."""
        ids = [id_bytes(id) for id in processes]
        known, self._read = self._read, {}  # a portion that is done again is read again
        rows = [known[id] for id in ids if id in known]
        rows += await rows_of(self._client.store, [id for id in ids if id not in known])
        portion = await self._portion(plan, operation, window)
        async with self._ahead.meanwhile(operation):
            told = await portion.carry_out(rows)
        judged = [*told.values(), *[portion.gone] * (len(ids) - len(rows))]
        left_out = Counter(one.why for one in judged if one.why and not one.failed)
        failed = Counter(one.why for one in judged if one.failed)
        done = len(judged) - left_out.total() - failed.total()
        return Carried(done, limited(left_out), limited(failed))

    async def relapsed(self, plan: OperationPlan, operation: str, began: int) -> int:
        """How many have failed or are broken, and fit the query, since the operation has commanded them."""
        number = 0
        if ends(plan):
            return number
        async for page in self._finder(plan, None).every():
            changed = [one.row for one in page if one.row.changed_at > began and one.row.status in FAILED]
            origin = origin_of(operation)
            found = await commanded(self._client.store, changed, origin, began)
            mine = [row for row in changed if row.id in found]
            number += len(mine) - await at_rest(self._client.store, mine, origin)
        return number

    async def _portion(self, plan: OperationPlan, operation: str, window: Window) -> OperationPortion:
        store = self._client.store
        hosted = await hosted_now(store) if asks_for_hosts(plan) else None
        began = window.until if window.first else await self._began(operation)
        return OperationPortion(self._client.parts, plan, operation, window, began, hosted)

    async def _began(self, operation: str) -> int:
        """When the operation was started, by the store's clock; 0 if it is gone."""
        rows = await rows_of(self._client.store, [id_bytes(operation)])
        return next((row.created_at or 0 for row in rows), 0)

    async def _goes_first(self, plan: OperationPlan, operation: str) -> str:
        """The operation with a lower number of priority that has something to do now, in words; empty if none has."""
        if not plan.priority:
            return ""
        now = await self._client.store.now()
        unfinished = Finder(self._client.store, Search(kind=KIND, statuses=(Status.RUNNING,)), "")
        async for page in unfinished.candidates():
            for row in await whole(self._client.store, [one.row for one in page]):
                busy = row.owner is not None or (row.due_at is not None and row.due_at <= now and not row.reminder)
                told = told_of(row)
                at_it = told.phase in (NOT_BEGUN, NOT_READ, "canary", "running") and not told.paused
                if row.priority < plan.priority and busy and at_it and id_text(row.id) != operation:
                    priorities = f"its priority is {row.priority}, here {plan.priority}"
                    return f"operation {id_text(row.id)} goes first: {priorities}"
        return ""

    async def _all(self, plan: OperationPlan) -> AsyncIterator[Sequence[Process]]:
        """All processes that the plan is for, portion by portion."""
        if plan.undoes:
            async for chosen in self._undone(plan):
                yield await rows_of(self._client.store, list(map(id_bytes, chosen.processes)))
        else:
            async for page in self._finder(plan, None).every():
                yield [one.row for one in page]

    async def _select_undone(self, plan: OperationPlan, before: str | None, most: int) -> Selected:
        """The next processes that are taken back. Behind a part of a portion ``before`` also says how long that is."""
        run, number, *taken = [1, 0] if before is None else map(int, before.split(":"))
        begin = taken[0] if taken else 0
        chosen = await anext(self._undone(plan, (run, number)), Selected([], None))
        part, end = chosen.processes[begin : begin + most], begin + most
        return Selected(part, chosen.before if end >= len(chosen.processes) else f"{run}:{number}:{end}")

    async def _undone(self, plan: OperationPlan, behind: tuple[int, int] = (1, 0)) -> AsyncIterator[Selected]:
        """The portions of the operation that is taken back: its history names the processes of each.

        ``before`` of a portion is the run and the number of its event, ``behind`` which the next one is looked for. An
        operation that was live may have chosen a process several times, and commanded it once: it counts where it was
        chosen first.
        """
        store, row = self._client.store, await self._client.row(plan.undoes)
        live, chosen_before = plan_of(row).live > 0, set[str]()
        run, number = (1, 0) if live else behind
        while run <= row.run:
            types = (EventType.STEP_COMPLETED,)
            found = await store.history(row.id, run, after=number, limit=1, types=types, names=(SELECTED,))
            for event in found:
                number = event.number
                chosen = json.decode(event.payload or b"{}", type=Selected).processes
                if live:
                    chosen = [process for process in chosen if process not in chosen_before]
                    chosen_before.update(chosen)
                if chosen and (run, number) > behind:
                    yield Selected(chosen, f"{run}:{number}")
            if not found:
                run, number = run + 1, 0

    def _finder(self, plan: OperationPlan, before: str | None) -> Finder:
        search = Search(tasks=True, before_id=None if before is None else id_bytes(before))
        return Finder(self._client.store, search, plan.where)
