"""A portion of an operation: many processes are read, judged and written together, each one fenced by itself.

The decision is that of a single command. A process whose commit is refused, since it has changed meanwhile, is judged
again alone, as a command to it would be; so are all if one decision is not enough for the verb.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from perdure.authoring.operation.plan import CHANGED, OperationPlan, Window
from perdure.client import validation
from perdure.client.decision import Decision
from perdure.client.finding.finder import ahead
from perdure.client.judged import Changed, Judged, effects, refused, unless_changed
from perdure.client.operation_verb import Means, command_of, origin_of, reopened
from perdure.client.orders import applied
from perdure.client.parents import TOLD, told_parents
from perdure.client.parts import ClientParts
from perdure.client.past_orders import cancelled, commanded, every_history
from perdure.client.single_order import ANY_TIME, SingleOrder, Tried
from perdure.client.whole_rows import cut, rows_of, whole
from perdure.errors import BadRecord, PerdureError, ProcessNotFound
from perdure.futures import asked
from perdure.kernel.child import beforehand
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event, HistoryWanted
from perdure.kernel.manual_result import NothingOpen
from perdure.kernel.process import Process
from perdure.kernel.worker import Pair
from perdure.loop import give_way

AT_ONCE = 50
"""How many commits are handed over together: a start waits behind no more of them."""
REMOVED = "it was removed"
BEFORE = "it was commanded before"

_Pair = tuple[Process, Sequence[Event]]


class _Handed(NamedTuple):
    """A commit that was handed over at the monotonic time ``sent``."""

    commit: Commit
    answer: asyncio.Future[Any]
    sent: float


class OperationPortion:
    """Gives the command of a plan to many processes, or tries it; what has changed after the window is left alone.

    ``began`` is a time of the store, in microseconds, before which the operation has commanded nothing.
    ``told`` says of each process that was judged what has become of its command.
    """

    def __init__(
        self,
        parts: ClientParts,
        plan: OperationPlan,
        operation: str,
        window: Window,
        began: int,
        hosted: Collection[Pair] | None = None,
    ) -> None:
        self.parts = parts
        self.window = window
        self.began = began
        self.origin = origin_of(operation)
        self.told: dict[bytes, Judged] = {}
        self.removes = plan.verb == "remove"
        self.gone = Judged() if self.removes else Judged(REMOVED)
        """What is said of a process that is not there: if it was to be removed, it was."""
        self.cancels = plan.verb == "cancel"
        self.reopened = reopened(plan)
        means = Means(parts.registry, parts.machine.random, hosted)
        command = command_of(plan, validation.sender(plan.who, plan.why, self.origin), means)
        self.decision = unless_changed(command, window.until) if isinstance(command, Decision) else None
        self.alone = (lambda order: order.carry_out(command)) if isinstance(command, Decision) else command
        self._alone: list[bytes] = []
        self._outrun: list[bytes] = []

    async def preview(self, rows: Sequence[Process]) -> dict[bytes, Judged]:
        """Judge each as the command itself would; nothing is written."""
        rows = await self._without_told(rows)
        if self.decision is None:
            await self._each_alone([row.id for row in rows], self.window.until, dry=True)
            return self.told
        async for some in ahead(self._read(self.decision, rows)):
            now = await self.parts.store.now()
            for row, history in some:
                if (commit := self._judge(self.decision, row, history, now)) is not None:
                    self.told[row.id] = effects(row, history, commit)
        return self.told

    async def carry_out(self, rows: Sequence[Process]) -> dict[bytes, Judged]:
        """Command each, once: one that this look has commanded already, in a try that was cut off, counts so."""
        fresh = [row for row in rows if row.changed_at <= self.window.until]
        if not self.window.first:
            before = await self._commanded(fresh, self.began)
            self.told |= dict.fromkeys(before, Judged(BEFORE))
            fresh = [row for row in fresh if row.id not in before]
        fresh = await self._without_told(fresh)
        if self.decision is None:
            self._alone += [row.id for row in fresh]
        else:
            await self._write(self.decision, fresh)
        await self._each_alone(self._alone, self.window.until)
        changed = [row for row in rows if row.changed_at > self.window.until]
        self.told |= dict.fromkeys(self._outrun, self.gone)  # unless it is found again
        await self._settle_changed([*changed, *await rows_of(self.parts.store, self._outrun)])
        return self.told

    async def _without_told(self, rows: Sequence[Process]) -> list[Process]:
        """These rows, without those that the command would let run again although their parents have had the answer."""
        ended = [row for row in rows if row.parent is not None and row.status in self.reopened]
        if not ended:
            return list(rows)
        told = await told_parents(self.parts.store, ended)
        self.told |= dict.fromkeys(told, Judged(TOLD))
        return [row for row in rows if row.id not in told]

    async def _settle_changed(self, rows: Sequence[Process]) -> None:
        """Count those that have changed by our own command, in this look, as commanded."""
        times = await self._commanded(rows, self.window.until)
        done = {id for id, at in times.items() if self.window.first or at > self.window.until}
        self.told |= {row.id: Judged() if row.id in done else Judged(CHANGED) for row in rows}
        if self.removes:  # a try that was cut off has ended them, and no more
            await self._each_alone(done, ANY_TIME)

    async def _commanded(self, rows: Sequence[Process], since: int) -> dict[bytes, int]:
        """Which of these processes the operation has commanded at that time or later, and when."""
        if self.cancels:
            return await cancelled(self.parts.store, rows, self.origin)
        return await commanded(self.parts.store, rows, self.origin, since)

    async def _read(self, decision: Decision, rows: Sequence[Process]) -> AsyncIterator[Sequence[_Pair]]:
        """The rows, not many at once, each whole, and with the history of its run if the decision reads it."""
        for listed in cut(rows, AT_ONCE):
            some = await whole(self.parts.store, listed)
            wanted = {
                row.id: HistoryWanted(row.id, row.run, row.events) for row in some if row.events and decision.reads(row)
            }
            bare = [(row, ()) for row in some if row.id not in wanted]
            if bare:
                yield bare
            by_id = {row.id: row for row in some}
            async for histories in every_history(self.parts.store, list(wanted.values())):
                yield [(by_id[id], history) for id, history in histories.items()]

    def _judge(self, decision: Decision, row: Process, history: Sequence[Event], now: int) -> Commit | None:
        give_way()
        try:
            commit = decision.decide(row, history, now)
        except NothingOpen as why:
            if decision.patient and row.owner is not None:
                self._alone.append(row.id)
            self.told[row.id] = refused(why)
        except Changed as why:  # between the list and now
            self._outrun.append(row.id)
            self.told[row.id] = refused(why)
        except PerdureError as why:
            self.told[row.id] = refused(why)
        else:
            self.told[row.id] = Judged()
            return commit
        return None

    async def _write(self, decision: Decision, rows: Sequence[Process]) -> None:
        """Have the commits written, while the next ones are read.

        Nothing is decided meanwhile: a store that writes in this process would hold its locks for longer, as it would
        wait for the interpreter's lock (GIL) at each statement.
        """
        under_way: list[_Handed] = []
        try:
            async for some in ahead(self._read(decision, rows)):
                now = await self.parts.store.now()
                commits = [commit for row, history in some if (commit := self._judge(decision, row, history, now))]
                sent = self.parts.machine.monotonic()
                # If we die here some of these commits are written: the portion is done again, and finds them.
                under_way = [
                    _Handed(commit, asked(self.parts.doors.commit, commit), sent)
                    for commit in commits
                    if self._fits(commit)
                ]
                await self._settle(under_way)
        finally:
            for one in under_way:
                one.answer.cancel()

    def _fits(self, commit: Commit) -> bool:
        """Whether one transaction is enough; else the process is commanded alone."""
        if beforehand(commit.sends):
            self._alone.append(commit.after.id)
            return False
        return True

    async def _settle(self, handed: Sequence[_Handed]) -> None:
        for one in handed:
            give_way()
            try:
                written = applied(self.parts, one.commit, await one.answer, one.sent)
            except BadRecord:
                written = False
            if not written:
                self._alone.append(one.commit.after.id)

    async def _each_alone(self, ids: Iterable[bytes], until: int, *, dry: bool = False) -> None:
        for some in cut(ids, AT_ONCE):
            orders = (self._judge_alone(SingleOrder(self.parts, id, until, dry=dry)) for id in some)
            answers = await asyncio.gather(*orders, return_exceptions=True)
            for answer in answers:  # all have ended: what is tried again meets no command that is still under way
                if answer is not None:
                    raise answer

    async def _judge_alone(self, order: SingleOrder) -> None:
        told = Judged()
        try:
            await self.alone(order)
        except Tried as tried:
            told = tried.judged
        except Changed as why:
            self._outrun.append(order.id_bytes)
            told = refused(why)
        except ProcessNotFound:
            told = self.gone
        except PerdureError as why:
            told = refused(why)
        self.told[order.id_bytes] = told
