"""Operations in every weather: each process is commanded once, none is left out unsaid, and the counts are true."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any, ClassVar

from msgspec import Struct

from perdure import Retry, receive, step, workflow
from perdure.authoring.operation import machine
from perdure.authoring.operation.plan import OperationStatus
from perdure.client.operation_row import plan_of
from perdure.client.operations import OperationHandle
from perdure.clock import SECOND
from perdure.errors import CallRefused, CallUnanswered, IllegalMove, PerdureError, ProcessNotFound
from perdure.kernel.event import Event, EventType
from perdure.kernel.inverse import HAVE_INVERSE
from perdure.kernel.process import FINAL, Process, Status
from perdure.store.base import Search
from perdure.testing.simulator import Cluster
from tests.simulator.misfortune import by_the_weather_alone

KINDS = ("payment", "approval")
FAILURES = frozenset({EventType.FAILED, EventType.BROKEN})
QUERIES = {
    "retry": "kind = payment and status in (failed, broken)",
    "restart": "kind = payment and status = failed",
    "skip": "kind = payment and error = ConnectionError",
    "set-result": "kind = payment and status = failed",
    "hold": "kind = approval and status = running",
    "resume": "kind = approval and status = held",
    "edit-input": "kind = payment and status = failed",
    "terminate": "kind = approval",
    "fail": "kind = approval and not key = 1",
    "remove": "kind = payment and status = failed",
    "restart-from": "kind = payment and status = failed",
    "cancel": "kind = approval and not key = 0",
    "edit-attributes": "kind = approval and status in (running, held)",
}
"""What each verb is given to."""
OF_APPROVALS = frozenset({"hold", "resume", "terminate", "fail", "cancel", "edit-attributes", "undo"})
NEVER_RELAPSE = OF_APPROVALS - {"resume"}
BY_HAND = 500
MOVED = "it has changed since the operation began"


class Bank:
    """Whether it is down, whom it never pays, and how often each has asked it."""

    down: ClassVar[bool] = False
    never: ClassVar[set[int]] = set()
    asked: ClassVar[Counter[int]] = Counter()


@step(retry=Retry.NONE, timeout=30)
async def paid(number: int, seconds: float) -> int:
    """Take a while; fail while the bank is down, and for some always."""
    Bank.asked[number] += 1
    await asyncio.sleep(seconds)
    if Bank.down or number in Bank.never:
        raise ConnectionError(f"the bank does not pay {number}")
    return number


@workflow
async def payment(number: int, seconds: float) -> int | None:
    """One step, which may fail."""
    return await paid(number, seconds)


@workflow
async def approval(number: int) -> int:
    """It waits for a person for a long time."""
    await receive("approved", timeout=3600)
    return number


class Ordered(Struct):
    """What the scenario knows of an operation that it has started."""

    verb: str
    handle: OperationHandle
    watch: float
    live: float
    began: int
    pauses: list[tuple[int, int]] = []
    aborted: int = 0
    undoes: Ordered | None = None


async def operated(cluster: Cluster) -> None:
    """Payments fail while the bank is down; people and operations mend them, pause, abort, and meddle meanwhile."""
    before = machine.PORTION
    machine.PORTION = cluster.pick((2, 3, 5, 50))
    Bank.down, Bank.never, Bank.asked = True, set(), Counter()
    try:
        every = await _begun(cluster)
        if cluster.draw(4):
            Bank.down = False
        orders: list[Ordered] = []
        meddlers = [asyncio.create_task(_meddled(cluster, id)) for id in every if cluster.draw(5) == 4]
        for _ in range(cluster.pick((1, 2, 3))):
            orders.append(await _ordered(cluster))
            await asyncio.sleep(cluster.pick((0.0, 0.5, 3.0)))
        people = [asyncio.create_task(_directed(cluster, one)) for one in orders if cluster.draw(2)]
        await asyncio.sleep(cluster.pick((0, 2, 6)))
        Bank.down = False
        await asyncio.gather(*people, *meddlers)
        outcomes = [await _over(cluster, one) for one in orders]
        for one in [one for one in orders if one.verb in HAVE_INVERSE and cluster.draw(2)]:
            undo = await _undone(cluster, one)
            orders.append(undo)
            outcomes.append(await _over(cluster, undo))
        await _rested(cluster)
        for one, outcome in zip(orders, outcomes, strict=True):
            await _judge(cluster, one, outcome, len(every))
        await _ended(cluster)
    finally:
        machine.PORTION = before


async def _begun(cluster: Cluster) -> list[str]:
    """Payments that have failed, and approvals that wait."""
    payments = cluster.pick((4, 7, 12))
    Bank.never |= {number for number in range(payments) if cluster.draw(4) == 3}
    every = [
        (await cluster.client.start(payment.options(key=f"{number}"), number, cluster.pick((0.1, 0.1, 2.0)))).id
        for number in range(payments)
    ]
    for number in range(cluster.pick((2, 4))):
        every.append((await cluster.client.start(approval.options(key=f"{number}"), number)).id)
    for _ in range(600):
        rows = await _rows(cluster, "payment")
        if all(row.status is not Status.RUNNING for row in rows):
            return every
        await asyncio.sleep(0.5)
    raise PerdureError("the payments do not fail")


SETTINGS: dict[str, dict[str, Any]] = {
    "skip": {"step": "paid"},
    "set-result": {"step": "paid", "value": BY_HAND},
    "edit-input": {"value": [BY_HAND, 0.1], "restart": True},
    "restart-from": {"step": "paid"},
    "edit-attributes": {"value": {"desk": "north"}},
}


async def _ordered(cluster: Cluster) -> Ordered:
    verb = cluster.pick(tuple(QUERIES))
    watch, live = cluster.pick((0.5, 5.0, 15.0)), cluster.pick((0.0, 0.0, 10.0))
    handle = await cluster.client.operations.start(
        verb,
        QUERIES[verb],
        **SETTINGS.get(verb, {}),
        rate=cluster.pick((None, None, 2.0)),
        canary=cluster.pick((0, 0, 2)),
        stop_after_failures=cluster.pick((0, 0, 2)),
        stop_when_relapsed=cluster.pick((1.0, 0.4)),
        priority=cluster.pick((4, 2, 7)),
        watch=watch,
        live=live,
        who="ann",
        why="the bank was down",
    )
    (_, began), _ = machine.OperationMachine.__machine__.shape.decode((await cluster.client.row(handle.id)).input)
    return Ordered(verb, handle, watch, live, began)


async def _undone(cluster: Cluster, one: Ordered) -> Ordered:
    """Take an operation back that has ended."""
    handle = await cluster.client.operations.undo(one.handle.id, who="ann", why="the wrong ones")
    plan = plan_of(row := await cluster.client.row(handle.id))
    cluster.require("the_value_is_exact", plan.undoes == one.handle.id, f"it takes back {plan.undoes}")
    return Ordered("undo", handle, 0.0, 0.0, row.created_at, undoes=one)


# -- what people do meanwhile ------------------------------------------------------------------------------------------


async def _meddled(cluster: Cluster, id: str) -> None:
    """A person mends one process by hand, while operations are at it."""
    for _ in range(cluster.pick((1, 2))):
        await asyncio.sleep(cluster.pick((0.0, 0.4, 2.0, 7.0)))
        handle = cluster.client.process(id)
        verb = cluster.draw(5)
        with suppress(IllegalMove, ProcessNotFound):
            if verb == 0:
                await handle.retry(who="bob")
            elif verb == 1:
                await handle.restart(who="bob")
            elif verb == 2:
                await handle.hold(who="bob")
            elif verb == 3:
                await handle.resume(who="bob")
            else:
                await handle.terminate(who="bob")


async def _directed(cluster: Cluster, one: Ordered) -> None:
    """A person pauses an operation, lets it go on, or ends it; while it is paused, it must command nothing."""
    for _ in range(cluster.pick((1, 2))):
        await asyncio.sleep(cluster.pick((0.1, 0.5, 2.0, 5.0)))
        with suppress(CallRefused, CallUnanswered, IllegalMove):
            if cluster.draw(3) < 2:
                await one.handle.pause("lunch")
                since = await cluster.client.store.now()
                await asyncio.sleep(cluster.pick((1.0, 6.0)))
                one.pauses.append((since, await cluster.client.store.now()))
                await one.handle.resume()
            else:
                await one.handle.abort("enough")
                one.aborted = await cluster.client.store.now()


async def _over(cluster: Cluster, one: Ordered) -> OperationStatus:
    """Wait for an operation's end; a person lets go on what has stopped itself, or was parked by the weather."""
    for _ in range(1_200):
        row = await cluster.client.row(one.handle.id)
        if row.status in FINAL:
            return await one.handle.status()
        if row.status is Status.BROKEN:
            innocent = by_the_weather_alone(cluster, row)
            cluster.require("everything_ends", innocent, f"an operation is broken: {row.error!r}")
            with suppress(IllegalMove):
                await cluster.client.process(row.id).retry(who="anna")
        status = await one.handle.status()
        if status.stopped or status.paused:
            cluster.probe("an operation has stopped itself", int(bool(status.stopped)))
            with suppress(CallRefused, CallUnanswered):
                await one.handle.resume()
        await asyncio.sleep(0.5)
    raise PerdureError(f"an operation does not end: {await one.handle.status()}")


async def _rested(cluster: Cluster) -> None:
    """Wait until no payment runs any more, so that what has failed again is known."""
    for _ in range(600):
        rows = await _rows(cluster, "payment")
        if all(row.status is not Status.RUNNING for row in rows):
            return
        await asyncio.sleep(0.5)
    raise PerdureError("the payments do not come to rest")


# -- the oracle --------------------------------------------------------------------------------------------------------


async def _judge(cluster: Cluster, one: Ordered, outcome: OperationStatus, every: int) -> None:
    told = f"operation {one.verb}: {outcome}"
    rows = [row for kind in KINDS for row in await _rows(cluster, kind)]
    gone = every - len(rows)  # removed since: what was done to them, and whether they have relapsed, stands nowhere
    commanded: dict[bytes, list[Event]] = {}
    for row in rows:
        commands = [event for event in await _events(cluster, row) if _by(event, one.handle.id)]
        commits = {(event.token, event.version) for event in commands}
        cluster.require("effect_once", len(commits) <= 1, f"{row.key} has {len(commits)} commands of one {told}")
        inbox = await cluster.client.store.messages([(row.id, 0)])
        wishes = [wish for wish in inbox if _of(wish.sender, one.handle.id)]
        cluster.require("effect_once", len(wishes) <= 1, f"{row.key} has {len(wishes)} wishes of one {told}")
        if commands or wishes:
            commanded[row.id] = commands
    _counted(cluster, one, outcome, rows, len(commanded), gone)
    times = [event.at for events in commanded.values() for event in events]
    for since, until in one.pauses:
        held = not any(since < at < until for at in times)
        cluster.require("operators_use_the_front_door", held, f"commanded while it was paused: {told}")
    ended = not one.aborted or all(at <= one.aborted for at in times)
    cluster.require("operators_use_the_front_door", ended, f"commanded after its end: {told}")
    if one.undoes is not None and one.undoes.verb == "hold":
        await _goes_on(cluster, one.undoes, [row for row in rows if row.changed_at <= one.began], told)
    if outcome.phase == "done":
        await _relapses(cluster, one, outcome, [row for row in rows if commanded.get(row.id)], commanded, gone)
    cluster.probe("an operation was carried out", outcome.done)


async def _goes_on(cluster: Cluster, undone: Ordered, rows: list[Process], told: str) -> None:
    """What an operation has held, and nobody else since, is held no more after its undo."""
    for row in rows:
        holds = [event for event in await _events(cluster, row) if event.type is EventType.HELD]
        left = row.status is Status.HELD and holds and _by(holds[-1], undone.handle.id)
        cluster.require("accepted_is_kept", not left, f"{row.key} is held still: {told}")
    cluster.probe("an operation was taken back")


def _counted(
    cluster: Cluster, one: Ordered, outcome: OperationStatus, rows: list[Process], commanded: int, gone: int
) -> None:
    told = f"operation {one.verb}: {outcome}, {commanded} of those that are there were commanded, and {gone} are gone"
    if one.verb != "remove":
        cluster.require("the_value_is_exact", commanded <= outcome.done <= commanded + gone, told)
    left_out = sum(outcome.left_out.values()) + sum(outcome.failed.values())
    cluster.require("the_value_is_exact", not outcome.failed, told)
    if outcome.phase != "done":
        return
    cluster.require("the_value_is_exact", outcome.seen == outcome.planned, told)
    still = [row for row in rows if row.changed_at <= one.began and _fits(one.verb, row)]
    unfit = left_out - outcome.left_out.get(MOVED, 0)
    cluster.require("accepted_is_kept", len(still) <= unfit, f"{len(still)} stand still and fit: {told}")


def _fits(verb: str, row: Process) -> bool:
    status = row.status
    if row.kind == "approval":
        wanted = {
            "hold": status is Status.RUNNING,
            "resume": status is Status.HELD,
            "terminate": True,
            "fail": row.key != "1",
            "edit-attributes": status in (Status.RUNNING, Status.HELD),
        }
        return wanted.get(verb, False)
    if verb in OF_APPROVALS:
        return False
    return status is Status.FAILED or (verb == "retry" and status is Status.BROKEN)


async def _relapses(
    cluster: Cluster,
    one: Ordered,
    outcome: OperationStatus,
    rows: list[Process],
    commanded: dict[bytes, list[Event]],
    gone: int,
) -> None:
    """What has failed again in time must be counted, and what has not may not be."""
    ended = (await cluster.client.row(one.handle.id)).changed_at
    looked = max((event.at for events in commanded.values() for event in events), default=0) + one.watch * SECOND
    least, most = 0, gone
    for row in rows:
        at = commanded[row.id][0].at
        fails = [event.at for event in await _events(cluster, row) if event.type in FAILURES and event.at >= at]
        most += any(failed <= ended for failed in fails) and one.verb not in NEVER_RELAPSE
        alone = not any(_by_person(event) for event in await _events(cluster, row) if event.at >= at)
        fits = _fits(one.verb, row) and len(fails) == 1 and fails[0] < looked
        least += alone and fits and row.changed_at == fails[0]
    told = f"operation {one.verb}: {outcome}, at least {least} and at most {most} have relapsed"
    cluster.require("people_are_told_the_truth", least <= outcome.relapsed <= most, told)
    cluster.probe("a process has relapsed after an operation", outcome.relapsed)


def _by(event: Event, operation: str) -> bool:
    return _of(event.payload, operation)


def _of(sender: bytes | None, operation: str) -> bool:
    return f"operation {operation}".encode() in (sender or b"")


def _by_person(event: Event) -> bool:
    return b'"bob"' in (event.payload or b"") or b'"carl"' in (event.payload or b"")


async def _events(cluster: Cluster, row: Process) -> list[Event]:
    """All that is recorded of a process, over its runs."""
    store = cluster.client.store
    runs = [await store.history(row.id, run) for run in range(1, row.run + 1)]
    return [event for events in runs for event in events]


async def _rows(cluster: Cluster, kind: str) -> list[Process]:
    return await cluster.client.store.search(Search(kind=kind, limit=1000))


async def _ended(cluster: Cluster) -> None:
    """In the end nothing is left hanging: what is held goes on, what waits is told, and all ends."""
    for _ in range(600):
        open = [row for kind in KINDS for row in await _rows(cluster, kind) if row.status not in FINAL]
        if not open:
            return
        for row in open:
            handle: Any = cluster.client.process(row.id)
            with suppress(IllegalMove, ProcessNotFound):
                if row.status is Status.HELD:
                    await handle.resume(who="carl")
                elif row.status is Status.BROKEN:
                    await handle.terminate(who="carl")
                elif row.kind == "approval":
                    await handle.signal("approved", key="approved")
        await asyncio.sleep(1)
    raise PerdureError(f"{[(row.kind, row.key, row.status) for row in open]} do not end")
