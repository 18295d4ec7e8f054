"""Operations: one command for many processes, tried before, carried out by a durable process, and looked back at."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import json

from perdure.authoring.operation.machine import KIND, OperationMachine
from perdure.authoring.operation.plan import Carried, OperationPlan, OperationStatus, Selected, add_reasons
from perdure.client import decision, validation
from perdure.client.decision import Decision
from perdure.client.finding.failures import FAILED
from perdure.client.finding.finder import Finder, ahead
from perdure.client.finding.grammar import parsed
from perdure.client.handle import Handle
from perdure.client.portion import REMOVED, OperationPortion, commanded, rows_of
from perdure.clock import Computer, Duration, in_seconds
from perdure.errors import InvalidInput
from perdure.kernel.checkpoint import has_begun
from perdure.kernel.names import id_bytes, id_text, near
from perdure.kernel.process import Process
from perdure.kernel.transition import Sender
from perdure.limits import LIST_ROWS
from perdure.store.base import Search

if TYPE_CHECKING:
    from perdure.client.client import Client

SAMPLES = 20

_Verb = Callable[[OperationPlan, Sender, Computer], Decision]
VERBS: Mapping[str, _Verb] = {
    "retry": lambda plan, sender, machine: decision.retry(sender),
    "restart": lambda plan, sender, machine: decision.restart(sender),
    "restart-from": lambda plan, sender, machine: decision.restart_from(sender, plan.step),
    "skip": lambda plan, sender, machine: decision.skip(sender, plan.step),
    "hold": lambda plan, sender, machine: decision.hold(sender, machine.random),
    "resume": lambda plan, sender, machine: decision.resume(sender),
    "terminate": lambda plan, sender, machine: decision.terminate(sender),
    "fail": lambda plan, sender, machine: decision.fail(sender),
}
"""What an operation can do to each process: the decision of a single command."""
WITH_STEP = frozenset({"restart-from", "skip"})
NO_RELAPSE = frozenset({"hold", "terminate", "fail"})
"""After these nothing goes on that could fail again."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What an operation would do now: ``would`` processes would get the command; ``left_out`` says why others not.

    ``sample`` are the ids of some that would get it.
    """

    would: int
    left_out: dict[str, int]
    sample: list[str] = field(default_factory=list)


class OperationHandle:
    """One operation: paused, resumed, aborted, and waited for."""

    def __init__(self, client: Client, id: str) -> None:
        self._handle: Handle[Any] = client.process(id, OperationStatus)
        self._client = client
        self.id = id

    async def status(self) -> OperationStatus:
        """What has become of it until now. Raises ProcessNotFound."""
        row = await self._client.row(self.id)
        return _outcome(row) or OperationStatus("waits for a worker")

    async def pause(self, why: str = "") -> None:
        """Do nothing more after the portion under way, until it is resumed. Raises CallRefused if it has ended."""
        await self._handle.call(OperationMachine.pause, why)

    async def resume(self) -> None:
        """Go on, after a pause or after it has stopped itself at its canary. Raises CallRefused if it has ended."""
        await self._handle.call(OperationMachine.resume)

    async def abort(self, why: str = "") -> None:
        """Command nothing more, for good; what was commanded stays so. Raises CallRefused if it has ended."""
        await self._handle.call(OperationMachine.abort, why)

    async def result(self, timeout: Duration | None = None) -> OperationStatus:
        """Wait for its end."""
        outcome: OperationStatus = await self._handle.result(timeout)
        return outcome


def _outcome(row: Process) -> OperationStatus | None:
    """What the row of an operation says, if it says something yet."""
    return None if not has_begun(row.state) else json.decode(row.state or b"{}", type=OperationStatus)


class Operations:
    """The verbs on many processes: ``engine.operations``."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._read: dict[bytes, Process] = {}
        """The rows of the portion that was selected last: if the same worker commands them, they are not read again."""

    async def preview(self, verb: str, where: str, *, step: str = "") -> Preview:
        """What the operation would do to each process that fits the query now; nothing is written.

        Each is judged as the command itself would judge it. Raises InvalidInput.
        """
        validation.outside_a_turn()
        plan = checked(OperationPlan(verb, where, step))
        now = await self._client.store.now()
        left_out: dict[str, int] = {}
        would: builtins.list[str] = []
        number = 0
        async for page in ahead(self._finder(plan, None).candidates()):
            told = await self._portion(plan, "", now).preview([one.row for one in page])
            fit = [id for id, why in told.items() if not why]
            number += len(fit)
            would += map(id_text, fit[: SAMPLES - len(would)])
            add_reasons(left_out, Counter(why for why in told.values() if why))
        return Preview(number, left_out, would)

    async def start(
        self,
        verb: str,
        where: str,
        *,
        step: str = "",
        rate: float | None = None,
        canary: int = 0,
        stop_at: float = 0.5,
        watch: Duration = 10.0,
        who: str = "",
        why: str = "",
    ) -> OperationHandle:
        """Give this command to all processes that fit the query and do not change meanwhile; any worker does it.

        Verbs are ``retry``, ``restart``, ``restart-from``, ``skip``, ``hold``, ``resume``, ``terminate`` and ``fail``.
        It is a durable process: it survives its worker, and commands each process once. ``rate`` is processes a second.
        ``canary`` of them come first: if of these more than the share ``stop_at`` have relapsed after ``watch``
        seconds, it stops until it is resumed or aborted. At its end it looks again, after as long, how many have
        relapsed. Raises InvalidInput.
        """
        validation.outside_a_turn()
        validation.sender(who, why, "client")
        plan = checked(OperationPlan(verb, where, step, rate, canary, stop_at, in_seconds(watch), who, why))
        id = id_text(self._client.machine.new_id())
        frozen = await self._client.store.now()
        attributes = {"verb": verb}
        handle = await self._client.start(
            OperationMachine.made.options(key=id, attributes=attributes), plan, id, frozen
        )
        return OperationHandle(self._client, handle.id)

    def handle(self, id: str) -> OperationHandle:
        """The operation with this id."""
        return OperationHandle(self._client, id)

    async def list(self, limit: int = 100) -> builtins.list[tuple[str, OperationStatus]]:
        """The operations that there are, the newest first: their ids, and what has become of each."""
        validation.outside_a_turn()
        rows = await self._client.store.search(validation.search(Search(kind=KIND, limit=limit)))
        return [(id_text(row.id), _outcome(row) or OperationStatus("waits for a worker")) for row in rows]

    # -- for the operation's own process -------------------------------------------------------------------------

    async def select(self, plan: OperationPlan, frozen: int, before: str | None, most: int) -> Selected:
        """The next processes that fit the plan and have not changed since ``frozen``."""
        found: builtins.list[str] = []
        finder = self._finder(plan, before)
        self._read = {}
        async for page in finder.candidates():
            self._read |= {one.row.id: one.row for one in page}
            found += [id_text(one.row.id) for one in page if one.row.changed_at <= frozen]
            if len(found) >= most:
                return Selected(found[:most], found[most - 1])
            if (
                len(found) * 2 >= most >= LIST_ROWS and finder.behind is not None
            ):  # what is left of a page is read twice
                return Selected(found, id_text(finder.behind))
        return Selected(found, None)

    async def carry_out(
        self, plan: OperationPlan, operation: str, frozen: int, processes: builtins.list[str]
    ) -> Carried:
        """Give each its command, once: one that has it already, from a try that was cut off, counts as done."""
        ids = [id_bytes(id) for id in processes]
        known, self._read = self._read, {}  # a portion that is done again is read again
        rows = [known[id] for id in ids if id in known]
        rows += await rows_of(self._client.store, [id for id in ids if id not in known])
        told = await self._portion(plan, operation, frozen).carry_out(rows)
        left_out = Counter(why for why in told.values() if why)
        done = len(rows) - left_out.total()
        if len(rows) < len(processes):
            left_out[REMOVED] += len(processes) - len(rows)
        reasons: dict[str, int] = {}
        add_reasons(reasons, left_out)
        return Carried(done, reasons)

    async def relapsed(self, plan: OperationPlan, operation: str, frozen: int) -> int:
        """How many have failed or are broken, and fit the query, since the operation has commanded them."""
        number = 0
        if plan.verb in NO_RELAPSE:
            return number
        async for page in ahead(self._finder(plan, None).candidates()):
            changed = [one.row for one in page if one.row.changed_at > frozen and one.row.status in FAILED]
            number += len(await commanded(self._client.store, changed, _origin(operation)))
        return number

    def _finder(self, plan: OperationPlan, before: str | None) -> Finder:
        search = Search(tasks=True, before_id=None if before is None else id_bytes(before))
        return Finder(self._client.store, search, plan.where)

    def _portion(self, plan: OperationPlan, operation: str, frozen: int) -> OperationPortion:
        origin = _origin(operation)
        sender = validation.sender(plan.who, plan.why, origin)
        return OperationPortion(
            self._client.parts, VERBS[plan.verb](plan, sender, self._client.machine), frozen, origin
        )


def _origin(operation: str) -> str:
    return f"operation {operation}"


def checked(plan: OperationPlan) -> OperationPlan:
    """The plan, if it can be carried out; raises InvalidInput."""
    if plan.verb not in VERBS:
        raise InvalidInput(
            f"there is no operation {plan.verb!r}.{near(plan.verb, VERBS)} There are {', '.join(VERBS)}."
        )
    if (plan.verb in WITH_STEP) is not bool(plan.step):
        needs = "needs a step" if plan.verb in WITH_STEP else "takes no step"
        raise InvalidInput(f"the operation {plan.verb!r} {needs}: step='charge'.")
    if not plan.where.strip():
        raise InvalidInput('an operation needs a query, so that it is not given to all by mistake: "status = failed".')
    if plan.rate is not None and not 0 < plan.rate < 1_000_000:
        raise InvalidInput(f"the rate {plan.rate} is not processes a second, more than 0.")
    if not (isinstance(plan.canary, int) and 0 <= plan.canary <= LIST_ROWS):
        raise InvalidInput(f"the canary {plan.canary} is not a number of processes from 0 to {LIST_ROWS:,}.")
    if not 0 <= plan.stop_at <= 1:
        raise InvalidInput(f"stop_at={plan.stop_at} is not a share from 0 to 1.")
    if not 0 <= plan.watch <= 24 * 3600:
        raise InvalidInput(f"watch={plan.watch} is not seconds from 0 to a day.")
    parsed(plan.where)
    return plan
