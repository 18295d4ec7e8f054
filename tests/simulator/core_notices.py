"""Notices in every weather: what a receiver is told of a process is what its history says, once and in order."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from msgspec import json

from perdure import Handle, Notice, Retry, limits, machine, process_id, receive, step, tell, workflow
from perdure.errors import IllegalMove, Permanent
from perdure.kernel.event import Event, EventType
from perdure.kernel.notice import RECEIVED
from perdure.kernel.process import FINAL, Status
from perdure.kernel.run import CONTINUED, opening_of
from perdure.testing.simulator import Cluster
from perdure.turns.renewal import continue_as_new
from tests.simulator.misfortune import by_the_weather_alone

CHANGES = {
    EventType.HELD: Status.HELD,
    EventType.RESUMED: Status.RUNNING,
    EventType.BROKEN: Status.BROKEN,
    EventType.COMPLETED: Status.COMPLETED,
    EventType.FAILED: Status.FAILED,
    EventType.EXPIRED: Status.FAILED,
    EventType.GIVEN_UP: Status.FAILED,
    EventType.CANCELLED: Status.CANCELLED,
    EventType.TERMINATED: Status.CANCELLED,
}
"""The status of a process after an event, for those that change it."""


class Desk(machine.Machine):
    """It is told what becomes of parcels, and notes it by parcel, in order."""

    told: dict[str, list[str]] = machine.field(default_factory=dict)
    ids: list[str] = machine.field(default_factory=list)
    results: dict[str, int] = machine.field(default_factory=dict)

    @machine.init
    def opened(self) -> None:
        """Nothing is known yet."""

    @machine.signal
    def notice(self, told: Notice) -> None:
        """Note it; a notice that comes twice would stand here twice."""
        self.told = {**self.told, told.process: [*self.told.get(told.process, ()), told.status]}
        self.ids = [*self.ids, told.id]
        if told.status == "completed":
            self.results = {**self.results, told.process: told.result}


@step(retry=Retry(attempts=40, first=0.2, cap=2.0), timeout=30)
async def carried(number: int, seconds: float) -> int:
    """Take a while; some parcels get lost."""
    await asyncio.sleep(seconds)
    if number % 5 == 4:
        raise Permanent("the parcel is lost")
    return number


@workflow
async def parcel(number: int, seconds: float, waits: bool, again: int = 0) -> int:
    """Ended by its code, or by what a person does while it waits."""
    if number % 2:
        await asyncio.sleep(8 * seconds)  # its first commit has no event
    await carried(number, seconds)
    if again:
        continue_as_new(number, seconds, waits, again - 1)
    if waits:
        with suppress(TimeoutError):
            await receive("go", timeout=6)
    if number % 3 == 0:
        tell(process_id(), "note")  # the commit that ends it is answered "read first", and made again
    return number


async def handled(cluster: Cluster, handle: Handle[int]) -> None:
    """What a person does to a parcel."""
    await asyncio.sleep(cluster.pick((0, 0.3, 1.0, 2.5)))
    verb = cluster.draw(8)
    with suppress(IllegalMove):  # it has ended, or the command was carried out and its answer was lost
        if verb == 0:
            await handle.terminate(who="anna")
        elif verb == 1:
            await handle.cancel()
        elif verb == 2:
            await handle.cancel(deadline=2)
        elif verb == 3:
            await handle.fail(who="anna")
        elif verb == 4:
            await handle.hold(who="anna")
            await asyncio.sleep(1)
            await handle.resume(who="anna")
        elif verb == 5:
            await handle.restart(who="anna")
        elif verb == 6:
            await handle.signal("go")


async def dispatch(cluster: Cluster) -> None:
    """Some parcels, one or two desks that are told; at the end each desk knows what the histories say."""
    before = limits.FOLDED_TURNS
    limits.FOLDED_TURNS = cluster.pick((200, 6))
    try:
        desks = [await cluster.client.start(Desk.opened) for _ in range(cluster.pick((1, 2)))]
        handles: list[tuple[Handle[None], Handle[int]]] = []
        for number in range(cluster.pick((3, 5, 9))):
            desk = cluster.pick(desks)
            options = parcel.options(reply_to=desk, deadline=cluster.pick((None, None, 3)))
            again = cluster.pick((0, 0, 1))
            seconds, waits = cluster.pick((0.1, 0.6, 2.0)), cluster.draw(2) == 1
            handles.append((desk, await cluster.client.start(options, number, seconds, waits, again)))
        await asyncio.gather(*(handled(cluster, handle) for _, handle in handles))
        await ended(cluster, [handle for _, handle in handles])
        for desk in desks:
            await _judge(cluster, desk, [handle for told, handle in handles if told is desk])
            await desk.terminate(why="all is said")
    finally:
        limits.FOLDED_TURNS = before


async def ended(cluster: Cluster, handles: list[Handle[int]]) -> None:
    """Wait for every end; a person lets go on what the weather alone has parked, and retries some that have failed."""
    retried: set[str] = set()
    for _ in range(300):
        rows = [await cluster.client.row(handle.id) for handle in handles]
        for handle, row in zip(handles, rows, strict=True):
            if row.status is Status.BROKEN:
                innocent = by_the_weather_alone(cluster, row)
                cluster.require("everything_ends", innocent, f"a parcel is broken: {row.error!r}")
            elif row.status is Status.HELD:
                with suppress(IllegalMove):
                    await handle.resume(who="anna")
            if row.status is Status.BROKEN or (row.status is Status.FAILED and handle.id not in retried):
                retried.add(handle.id)
                with suppress(IllegalMove):
                    await handle.retry(who="anna")
        if all(row.status in FINAL for row in rows) and len(retried) >= sum(
            row.status is Status.FAILED for row in rows
        ):
            rows = [await cluster.client.row(handle.id) for handle in handles]
            if all(row.status in FINAL for row in rows):
                return
        await asyncio.sleep(1)
    cluster.require("everything_ends", False, f"parcels do not end: {[row.status for row in rows]}")


async def _judge(cluster: Cluster, desk: Handle[None], handles: list[Handle[int]]) -> None:
    wanted = {handle.id: await changes(cluster, handle) for handle in handles}
    number = sum(map(len, wanted.values()))
    for _ in range(300):
        row = await cluster.client.row(desk.id)
        if row.status is Status.BROKEN:
            cluster.require("everything_ends", by_the_weather_alone(cluster, row), f"a desk is broken: {row.error!r}")
            with suppress(IllegalMove):
                await desk.retry(who="anna")
        state = json.decode(row.state or b"{}")
        if len(state.get("ids", ())) >= number and row.inbox == row.seen and row.owner is None:
            break
        await asyncio.sleep(1)
    told, ids = state.get("told", {}), state.get("ids", ())
    cluster.require("effect_once", len(set(ids)) == len(ids), f"a notice came twice: {told}")
    for id, wants in wanted.items():
        heard = told.get(id, [])
        kept = sorted(heard) == sorted(wants)
        cluster.require("accepted_is_kept", kept, f"of {id} was told {heard}, it was {wants}")
        cluster.require("in_order", heard == wants, f"of {id} was told {heard}, it was {wants}")
    cluster.require("accepted_is_kept", len(ids) == number, f"{len(ids)} notices came of {number}")
    for handle in handles:
        row = await cluster.client.row(handle.id)
        if row.status is Status.COMPLETED:
            exact = state["results"].get(handle.id) == json.decode(row.result or b"null")
            cluster.require("the_value_is_exact", exact, f"another result was told of {handle.id}")


async def changes(cluster: Cluster, handle: Handle[int]) -> list[str]:
    """What the histories of its runs say of a process, as its notices must have told it."""
    last = await cluster.client.row(handle.id)
    told, status = [RECEIVED], Status.RUNNING
    for run in range(1, last.run + 1):
        events = await cluster.client.store.history(last.id, run, limit=1_000)
        for event in events:
            if _opens(event, events) and _stays_held(events):
                continue
            after = CHANGES.get(event.type, Status.RUNNING if _opens(event, events) else status)
            if after is not status:
                told.append(after.value)
            status = after
    cluster.require("the_value_is_exact", status is last.status, f"{handle.id} is {last.status}, its history {status}")
    return told


def _opens(event: Event, events: list[Event]) -> bool:
    return event.type is EventType.RUN_OPENED and opening_of(events).done != CONTINUED


def _stays_held(events: list[Event]) -> bool:
    """Whether the commit that opened this run has left the process held: its input was edited before it began."""
    return len(events) > 1 and events[1].type is EventType.HELD and events[1].at == events[0].at
