"""Operations: one command for many processes, tried before, carried out by a durable process, and looked back at."""

from __future__ import annotations

import builtins
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure.authoring.operation.machine import KIND, OperationMachine
from perdure.authoring.operation.plan import UNDO, OperationPlan, OperationStatus, Window, limited
from perdure.client import validation
from perdure.client.finding.finder import ahead
from perdure.client.finding.saved import expanded
from perdure.client.handle import Handle
from perdure.client.operation_orders import OperationOrders
from perdure.client.operation_row import NOT_BEGUN, outcome_of, plan_of, told_of
from perdure.client.operation_verb import checked, with_care
from perdure.client.whole_rows import whole
from perdure.clock import Duration, in_seconds
from perdure.errors import (
    IllegalMove,
    InvalidInput,
)
from perdure.kernel.inverse import no_inverse
from perdure.kernel.names import id_text
from perdure.kernel.process import DEFAULT_PRIORITY, Process
from perdure.store.base import Search

if TYPE_CHECKING:
    from perdure.client.client import Client

SAMPLES = 20


@dataclass(frozen=True, slots=True)
class Preview:
    """What an operation would do now: ``would`` processes would get the command; ``left_out`` says why others not.

    ``sample`` are the ids of some that would get it. ``children`` counts the messages to children and others that it
    would send, ``repeated`` the steps that were done and would run again. ``seconds`` is about how long it would take:
    by its rate, or as long as it took to judge them, twice.
    """

    would: int
    left_out: dict[str, int]
    sample: list[str] = field(default_factory=list)
    children: int = 0
    repeated: int = 0
    seconds: float = 0.0


class OperationHandle:
    """One operation: paused, resumed, aborted, and waited for.

    Every method raises ProcessNotFound if there is no process with its id, InvalidInput if that is no operation.
    """

    def __init__(self, client: Client, id: str) -> None:
        self._handle: Handle[Any] = client.process(id, OperationStatus)
        self._client = client
        self.id = id

    async def status(self) -> OperationStatus:
        """What has become of it until now."""
        row = await operation_row(self._client, self.id)
        return outcome_of(row) or OperationStatus(NOT_BEGUN)

    async def pause(self, why: str = "") -> None:
        """Do nothing more after the portion under way, until it is resumed. Raises CallRefused if it has ended."""
        await operation_row(self._client, self.id)
        await self._handle.call(OperationMachine.pause, why)

    async def resume(self) -> None:
        """Go on, after a pause or after it has stopped itself at its canary. Raises CallRefused if it has ended."""
        await operation_row(self._client, self.id)
        await self._handle.call(OperationMachine.resume)

    async def abort(self, why: str = "") -> None:
        """Command nothing more, for good; what was commanded stays so. Raises CallRefused if it has ended."""
        await operation_row(self._client, self.id)
        await self._handle.call(OperationMachine.abort, why)

    async def result(self, timeout: Duration | None = None) -> OperationStatus:
        """Wait for its end."""
        await operation_row(self._client, self.id)
        outcome: OperationStatus = await self._handle.result(timeout)
        return outcome


async def operation_row(client: Client, id: str) -> Process:
    """The stored row of an operation; raises ProcessNotFound, and InvalidInput if the process is another one."""
    row = await client.row(id)
    if row.kind != KIND:
        raise InvalidInput(
            f"process {id} is no operation, its kind is {row.kind}; `perdure operation ls` lists what there is"
        )
    return row


class Operations(OperationOrders):
    """The verbs on many processes: ``engine.operations``."""

    async def preview(
        self, verb: str, where: str, *, step: str = "", value: Any = None, method: str = "", restart: bool = False,
        force: bool = False, rate: float | None = None,
    ) -> Preview:  # fmt: skip
        """What the operation would do to each process that fits the query now; nothing is written.

        Each is judged as the command itself would judge it. Raises InvalidInput.
        """
        validation.outside_a_turn()
        where = await expanded(self._client.store, where)
        return await self._previewed(
            checked(OperationPlan(verb, where, step, rate, value=value, method=method, restart=restart, force=force))
        )

    async def preview_undo(self, operation: str, *, rate: float | None = None) -> Preview:
        """What would be taken back of an operation that has ended, and of what not, with reasons; nothing is written.

        Raises ProcessNotFound if there is no such operation or its history was removed, IllegalMove if it goes on.
        """
        validation.outside_a_turn()
        return await self._previewed(await self._undo(OperationPlan(UNDO, "", rate=rate, undoes=operation)))

    async def _previewed(self, plan: OperationPlan) -> Preview:
        clock, now = self._client.machine.monotonic, await self._client.store.now()
        began, left_out, would = clock(), Counter[str](), list[str]()
        number = judged = children = repeated = 0
        async for rows in ahead(self._all(plan)):
            told = await (await self._portion(plan, "", Window(now))).preview(rows)
            judged += len(told)
            for id, one in told.items():
                if one.why:
                    left_out[one.why] += 1
                    continue
                number += 1
                children, repeated = children + one.children, repeated + one.repeated
                would += [id_text(id)] if len(would) < SAMPLES else []
        pace = (clock() - began) / max(judged, 1)
        seconds = 2 * pace * number if plan.rate is None else number / plan.rate
        return Preview(number, limited(left_out), would, children, repeated, seconds)

    async def start(
        self, verb: str, where: str, *, step: str = "", value: Any = None, method: str = "", restart: bool = False,
        force: bool = False, rate: float | None = None, canary: int = 0, stop_at: float = 0.5, watch: Duration = 10.0,
        stop_after_failures: int = 0, stop_when_relapsed: float = 1.0, live: Duration = 0.0,
        priority: int = DEFAULT_PRIORITY, who: str = "", why: str = "",
    ) -> OperationHandle:  # fmt: skip
        """Give this command to all processes that fit the query and do not change meanwhile; any worker does it.

        Verbs are ``retry``, ``restart``, ``hold``, ``resume``, ``cancel``, ``terminate``, ``fail``; ``restart-from``
        and ``skip`` with ``step``; ``set-result`` with ``step`` and ``value``; ``repair`` with ``method`` and a list of
        its arguments as ``value``; ``edit-input`` with arguments as ``value`` (a list, or a dict by name) and
        ``restart`` if the processes have begun; ``edit-fields`` and ``edit-attributes`` with a dict as ``value``;
        ``move`` with a version as ``value``, with ``force`` also to one that nobody hosts; ``set-priority`` with 0 to
        9; ``set-deadline`` with seconds from the command on, the text of a time with its zone, or ``"none"``;
        ``remove``, with ``force`` also of what has not ended.

        It is a durable process: it survives its worker, and commands each process once. ``rate`` is processes a second.
        ``canary`` of them come first: if of these more than the share ``stop_at`` have relapsed after ``watch``
        seconds, it stops until it is resumed or aborted. It stops too at ``stop_after_failures`` processes that have
        relapsed or could not be commanded, or if more than the share ``stop_when_relapsed`` of the commanded ones have
        relapsed; relapses are looked for every ``watch`` seconds. At its end it looks again, after as long, how many
        have relapsed. Processes that come to fit later do not count, but for ``live`` seconds, in which it looks again
        and again. Of several operations the one with the lowest ``priority``, 0 to 9, goes first while it has something
        to do. Raises InvalidInput.
        """
        validation.outside_a_turn()
        where = await expanded(self._client.store, where)
        plan = OperationPlan(
            verb, where, step, rate, canary, stop_at, in_seconds(watch), who, why, value, method, restart, force,
            stop_after_failures, stop_when_relapsed, priority, in_seconds(live),
        )  # fmt: skip
        return await self._started(checked(plan))

    async def undo(
        self, operation: str, *, rate: float | None = None, priority: int = DEFAULT_PRIORITY, who: str = "",
        why: str = "",
    ) -> OperationHandle:  # fmt: skip
        """Take back what an operation has done, where that can be: what was held goes on, what was resumed is held.

        An edit gets its old value, and what was resumed is held, if nothing has happened to the process since; what was
        moved gets its old version if the other one has recorded nothing; a priority and a deadline are those before.
        All else is left out with the reason. It is an operation as well. Raises as :meth:`preview_undo`; IllegalMove
        also if what the verb has done can never be taken back.
        """
        validation.outside_a_turn()
        undo = OperationPlan(UNDO, "", rate=rate, watch=0.0, who=who, why=why, priority=priority, undoes=operation)
        plan = await self._undo(with_care(undo))
        if never := no_inverse(plan.undoes_verb):
            raise IllegalMove(f"an operation of {plan.undoes_verb!r} cannot be taken back: {never}")
        return await self._started(plan)

    async def _started(self, plan: OperationPlan) -> OperationHandle:
        validation.sender(plan.who, plan.why, "client")
        began = await self._client.store.now()
        options = OperationMachine.made.options(attributes={"verb": plan.verb}, priority=plan.priority)
        return OperationHandle(self._client, (await self._client.start(options, plan, began)).id)

    async def _undo(self, plan: OperationPlan) -> OperationPlan:
        """The plan of an undo, with the verb of the operation that it takes back."""
        row = await operation_row(self._client, plan.undoes)
        outcome = outcome_of(row)
        if outcome is None or not outcome.ended:
            raise IllegalMove(f"operation {plan.undoes} has not ended; abort it first (`perdure operation abort`)")
        undone = plan_of(row)
        if undone.verb == UNDO:
            raise IllegalMove("an undo cannot be taken back; start an operation with the verb that you want")
        return replace(plan, undoes=id_text(row.id), undoes_verb=undone.verb)

    def handle(self, id: str) -> OperationHandle:
        """The operation with this id."""
        return OperationHandle(self._client, id)

    async def list(self, limit: int = 100) -> builtins.list[tuple[str, OperationStatus]]:
        """The operations that there are, the newest first: their ids, and what has become of each."""
        validation.outside_a_turn()
        store = self._client.store
        rows = await whole(store, await store.search(validation.search(Search(kind=KIND, limit=limit))))
        return [(id_text(row.id), told_of(row)) for row in rows]
