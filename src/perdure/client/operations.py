"""Operations: one command for many processes, tried before, carried out by a durable process, and looked back at."""

from __future__ import annotations

import asyncio
import builtins
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import json

from perdure.authoring.operation.machine import KIND, OperationMachine
from perdure.authoring.operation.plan import Carried, OperationPlan, OperationStatus, Selected
from perdure.client import validation
from perdure.client.finding.failures import FAILED
from perdure.client.finding.fields import Candidate
from perdure.client.finding.finder import Finder
from perdure.client.finding.grammar import parsed
from perdure.client.handle import Handle
from perdure.client.parts import ClientParts
from perdure.clock import Duration, in_seconds
from perdure.errors import IllegalMove, InvalidInput, PerdureError
from perdure.kernel.checkpoint import has_begun
from perdure.kernel.event import Event
from perdure.kernel.names import id_bytes, id_text, near
from perdure.kernel.process import Process
from perdure.limits import LIST_ROWS
from perdure.store.base import Search

if TYPE_CHECKING:
    from perdure.client.client import Client

AT_ONCE = 200
"""How many processes of a portion are commanded side by side."""
EVENTS = 100
"""How many of a process's last events are looked at for a command of the operation."""
SAMPLES = 20


class _Changed(IllegalMove):
    """The process has changed since the operation began."""


class _Tried(PerdureError):
    """Nothing was written: the command would be carried out."""


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
            if row.changed_at > self.frozen:
                raise _Changed("it has changed since the operation began")
            commit = decide(row, history, now)
            if self.dry:
                raise _Tried
            return commit

        row = self.row
        events = row.events if read else 0
        history = await self._parts.store.history(row.id, row.run, limit=events) if events else ()
        if not await self._carried_out(row, history, judged, self.now):
            await super()._order(judged, read=read)


_Command = Callable[[Handle[Any], OperationPlan, Mapping[str, str]], Awaitable[Any]]
VERBS: Mapping[str, _Command] = {
    "retry": lambda handle, plan, said: handle.retry(**said),
    "restart": lambda handle, plan, said: handle.restart(**said),
    "restart-from": lambda handle, plan, said: handle.restart_from(plan.step, **said),
    "skip": lambda handle, plan, said: handle.skip(plan.step, **said),
    "hold": lambda handle, plan, said: handle.hold(**said),
    "resume": lambda handle, plan, said: handle.resume(**said),
    "terminate": lambda handle, plan, said: handle.terminate(**said),
    "fail": lambda handle, plan, said: handle.fail(**said),
}
"""What an operation can do to each process."""
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

    async def preview(self, verb: str, where: str, *, step: str = "") -> Preview:
        """What the operation would do to each process that fits the query now; nothing is written.

        Each is judged as the command itself would judge it. Raises InvalidInput.
        """
        validation.outside_a_turn()
        plan = checked(OperationPlan(verb, where, step))
        now = await self._client.store.now()
        left_out: Counter[str] = Counter()
        would: list[str] = []
        number = 0
        async for page in self._finder(plan, None).candidates():
            rows = [one.row for one in page]
            for row, why in zip(rows, await self._each(plan, "", now, rows, dry=True), strict=True):
                if why:
                    left_out[why] += 1
                    continue
                number += 1
                would += [id_text(row.id)] if len(would) < SAMPLES else []
        return Preview(number, dict(left_out), would)

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
        found: builtins.list[Candidate] = []
        async for page in self._finder(plan, before).candidates():
            found += [one for one in page if one.row.changed_at <= frozen]
            if len(found) >= most:
                chosen = [id_text(one.row.id) for one in found[:most]]
                return Selected(chosen, chosen[-1])
        return Selected([id_text(one.row.id) for one in found], None)

    async def carry_out(
        self, plan: OperationPlan, operation: str, frozen: int, processes: builtins.list[str]
    ) -> Carried:
        """Give each its command, once: one that has it already, from a try that was cut off, counts as done."""
        ids = tuple(map(id_bytes, processes))
        rows = await self._client.store.search(Search(ids=ids, limit=len(ids)))
        left_out = Counter(why for why in await self._each(plan, operation, frozen, rows) if why)
        done = len(rows) - left_out.total()
        if len(rows) < len(ids):
            left_out["it was removed"] += len(ids) - len(rows)
        return Carried(done, dict(left_out))

    async def relapsed(self, plan: OperationPlan, operation: str, frozen: int) -> int:
        """How many have failed or are broken, and fit the query, since the operation has commanded them."""
        number = 0
        if plan.verb in NO_RELAPSE:
            return number
        async for page in self._finder(plan, None).candidates():
            changed = [one.row for one in page if one.row.changed_at > frozen and one.row.status in FAILED]
            for some in _portions(changed, AT_ONCE):
                number += sum(await asyncio.gather(*(self._commanded(row, operation) for row in some)))
        return number

    def _finder(self, plan: OperationPlan, before: str | None) -> Finder:
        search = Search(tasks=True, before_id=None if before is None else id_bytes(before))
        return Finder(self._client.store, search, plan.where)

    async def _each(
        self, plan: OperationPlan, operation: str, frozen: int, rows: Sequence[Process], *, dry: bool = False
    ) -> builtins.list[str]:
        """For each an empty text if it was commanded, or why not."""
        told: builtins.list[str] = []
        for some in _portions(rows, AT_ONCE):
            now = await self._client.store.now()
            ordered = (_Ordered(self._client.parts, row, now, frozen, dry=dry) for row in some)
            told += await asyncio.gather(*(self._one(plan, operation, handle) for handle in ordered))
        return told

    async def _one(self, plan: OperationPlan, operation: str, handle: _Ordered) -> str:
        said = {"who": plan.who, "why": plan.why, "origin": _origin(operation)}
        try:
            await VERBS[plan.verb](handle, plan, said)
        except _Tried:
            return ""
        except _Changed as why:
            row = await self._client.row(handle.id_bytes)
            return "" if operation and await self._commanded(row, operation) else str(why)
        except PerdureError as why:
            return str(why)
        return ""

    async def _commanded(self, row: Process, operation: str) -> bool:
        """Whether the last run of a process has a command of this operation."""
        origin, store = _origin(operation).encode(), self._client.store
        first = await store.history(row.id, row.run, limit=1)
        last = await store.history(row.id, row.run, limit=EVENTS, backward=True)
        return any(origin in (event.payload or b"") for event in (*first, *last))


def _origin(operation: str) -> str:
    return f"operation {operation}"


def _portions(every: Sequence[Any], size: int) -> Any:
    rest = iter(every)
    return iter(lambda: tuple(islice(rest, size)), ())


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
