"""Schedules in every weather: each instant comes once, or is counted as left out; no more run at once than may."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime

from msgspec import Struct, json

from perdure import Retry, Schedule, attempt, limits, step, workflow
from perdure.authoring.schedule.definition import Overlap, instant_of, moment
from perdure.client.schedules import ScheduleHandle, ScheduleView
from perdure.clock import SECOND
from perdure.errors import IllegalMove, PerdureError
from perdure.kernel.message import MessageType
from perdure.kernel.names import id_bytes, id_text
from perdure.kernel.process import FINAL, Process, Status
from perdure.store.base import Search
from perdure.testing.simulator import Cluster
from perdure.testing.simulator.life import Life
from perdure.testing.simulator.loop import SimLoop
from tests.simulator.misfortune import by_the_weather_alone
from tests.simulator.witness import Locks

printing: list[tuple[str, Life]] = []
"""The processes whose step has begun, each with the OS process in which it has."""


@step(retry=Retry(attempts=60, first=0.2, cap=2.0), timeout=30)
async def printed(name: str, seconds: float) -> str:
    """Take a while."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, SimLoop):
        printing.append((attempt().process, loop.current()))
    await asyncio.sleep(seconds)
    return name


@workflow
async def issue(name: str, every: int, scheduled_at: datetime | None = None) -> str:
    """How long it takes, and whether it fails, follows from the instant."""
    assert scheduled_at is not None
    number = int(scheduled_at.timestamp()) // every
    await printed(name, (0.2, 0.2, 3.0, every + 1.5)[number % 4])
    if name.endswith("failing") and number % 3:
        raise ValueError("the press has stopped")
    return name


class Kept(Struct):
    """What the scenario knows of a schedule that it has made."""

    name: str
    every: int
    overlap: Overlap
    limit: int
    catch_up: int
    stop_after: int | None
    handle: ScheduleHandle
    calm: bool
    triggered: list[str]
    made: int = 0


async def make(cluster: Cluster, number: int) -> Kept:
    """Make a schedule, perhaps twice."""
    overlap: Overlap = cluster.pick(("skip", "queue", "cancel", "allow"))
    every, limit = cluster.pick((3, 2, 7)), cluster.pick((1, 2))
    stop_after = cluster.pick((None, 2))
    name = f"{number} failing" if cluster.draw(3) == 2 else f"{number}"
    catch_up = cluster.pick((3600, 10))
    schedule = Schedule(
        every=every,
        overlap=overlap,
        limit=None if overlap == "allow" else limit,
        stop_after=stop_after,
        catch_up=catch_up,
        jitter=cluster.pick((0, 1.5)),
    )
    for _ in range(cluster.pick((1, 2))):
        handle = await cluster.client.schedules.put(name, schedule, issue, name, every)
    row = await cluster.client.row((await handle.process()).id)
    since = json.decode(row.input)[3]
    return Kept(name, every, overlap, limit, catch_up, stop_after, handle, cluster.draw(3) < 2, [], since)


async def disturb(cluster: Cluster, kept: Kept) -> None:
    """What a person does to a schedule."""
    for _ in range(cluster.pick((1, 3))):
        await asyncio.sleep(cluster.pick((2, 5, 11)))
        verb = cluster.draw(3)
        if verb == 0:
            await kept.handle.pause(why="a strike")
            await asyncio.sleep(cluster.pick((1, 8)))
            await kept.handle.resume()
        elif verb == 1:
            kept.triggered.append((await kept.handle.trigger()).id)
        else:
            start = moment((kept.made // SECOND - 20) * SECOND)
            await kept.handle.backfill(start, moment(kept.made - 10 * SECOND))


async def almanac(cluster: Cluster) -> None:
    """Some schedules for a while; what they have counted fits what was started, and nothing is left hanging."""
    before = limits.FOLDED_TURNS, limits.SCHEDULE_STARTED_RECORDS, limits.SCHEDULE_LOOK_SECONDS
    limits.FOLDED_TURNS = cluster.pick((200, 6, 15))
    limits.SCHEDULE_STARTED_RECORDS = cluster.pick((100, 3))
    limits.SCHEDULE_LOOK_SECONDS = 1.0
    printing.clear()
    locks = cluster.server.locks = Locks(cluster.server.locks)
    taken: dict[bytes, int] = {}  # the store's time when a worker first had it: the row says what that worker thought
    cluster.monitor.took = lambda life, process: taken.setdefault(process.id, process.changed_at)
    try:
        every = [await make(cluster, number) for number in range(cluster.pick((1, 2, 3)))]
        await asyncio.gather(*(disturb(cluster, kept) for kept in every if not kept.calm))
        await asyncio.sleep(cluster.pick((20, 40, 5)))
        for kept in every:
            await _goes_on(cluster, kept)
        last = [await _ended(cluster, kept) for kept in every]
        for kept, view in zip(every, last, strict=True):
            await _judge(cluster, kept, view, taken)
            await (await kept.handle.process()).terminate(why="all is said")
        for process, life in printing:
            owners = cluster.monitor.leases.get(id_bytes(process), {})
            ours = any(locks.ever.get(owner) is life for owner in owners)
            cluster.require("one_owner", ours, f"a step of {process} began in a worker that has never had it")
    finally:
        limits.FOLDED_TURNS, limits.SCHEDULE_STARTED_RECORDS, limits.SCHEDULE_LOOK_SECONDS = before


async def _goes_on(cluster: Cluster, kept: Kept) -> None:
    """Once all is well again a schedule that does not pause has its next time before it, or soon behind it."""
    for _ in range(300):
        view = await kept.handle.status()
        row = await cluster.client.row(view.process)
        if row.status is Status.BROKEN:
            await _revive(cluster, row)
        now = moment(await cluster.client.store.now())
        if view.paused or (view.next is not None and (now - view.next).total_seconds() < kept.every + 3):
            return
        await asyncio.sleep(1)
    cluster.require("everything_ends", False, f"schedule {kept.name} does not go on: {view}")


async def _ended(cluster: Cluster, kept: Kept) -> ScheduleView:
    """Pause it for good, and wait until all that it has started has ended; what it was when it paused."""
    await kept.handle.pause(why="the end")
    for _ in range(300):
        view = await kept.handle.status()
        row = await cluster.client.row(view.process)
        rows = await _processes(cluster, kept)
        for one in (row, *rows):
            if one.status is Status.BROKEN:
                await _revive(cluster, one)
        if view.paused == "the end" and row.owner is None and all(one.status in FINAL for one in rows):
            return view
        await asyncio.sleep(1)
    left = [(row.key, row.status, row.awaiting) for row in rows if row.status not in FINAL]
    raise PerdureError(f"what schedule {kept.name} has started does not end: {view.paused!r}, {row.owner!r}, {left}")


async def _revive(cluster: Cluster, row: Process) -> None:
    """Let one go on that the weather alone has parked."""
    innocent = by_the_weather_alone(cluster, row)
    cluster.require("everything_ends", innocent, f"{row.kind} {row.key} is broken: {row.error!r}")
    with suppress(IllegalMove):  # the command before was carried out, and its answer was lost
        await cluster.client.process(row.id).retry(who="anna")


async def _processes(cluster: Cluster, kept: Kept) -> list[Process]:
    search = Search(kind="issue", attributes=(("schedule", json.encode(kept.name).decode()),), limit=1000)
    return sorted(await cluster.client.store.search(search), key=lambda row: row.key or "")


async def _judge(cluster: Cluster, kept: Kept, view: ScheduleView, taken: dict[bytes, int]) -> None:
    rows = await _processes(cluster, kept)
    instants = {_instant(row): row for row in rows}
    cluster.require("effect_once", len(instants) == len(rows), f"an instant of schedule {kept.name} came twice")
    triggered = {at: row for at, row in instants.items() if id_text(row.id) in kept.triggered}
    cluster.require("effect_once", len(triggered) == len(kept.triggered), f"a trigger of schedule {kept.name} is lost")
    # One that was triggered at the very instant of an occurrence is that occurrence too.
    due = {
        at: row
        for at, row in instants.items()
        if at % (kept.every * SECOND) == 0 and at > kept.made and at not in triggered
    }
    for at, row in due.items():
        began = min(row.created_at, taken.get(row.id, at))
        cluster.require("the_value_is_exact", began >= at, f"{row.key} began {(at - began) / SECOND} s early")
    if kept.calm:
        state = json.decode((await cluster.client.row(view.process)).state or b"{}")
        cursor = state["standing"]["cursor"]
        come = cursor // (kept.every * SECOND) - kept.made // (kept.every * SECOND)
        told = f"of {come} instants of schedule {kept.name} {len(due)} were started, {view.skipped} left out"
        stopped = kept.stop_after is not None
        counted = len(due) + view.skipped + view.missed
        fits = counted == come or (stopped and counted >= come)
        cluster.require("the_value_is_exact", fits, f"{told}, {view.missed} missed")
        cluster.require("the_value_is_exact", len(due) == view.started, f"{told}, and it has counted {view.started}")
    in_time = kept.catch_up < 3600 or not view.missed
    cluster.require("the_value_is_exact", in_time, f"schedule {kept.name} missed {view.missed} in less than an hour")
    if kept.overlap != "allow":
        most = _at_once([(row.created_at, await _asked(cluster, row)) for row in due.values()])
        cluster.require(
            "in_order", most <= kept.limit, f"{most} of schedule {kept.name} ran at once, unasked to cancel"
        )
    cluster.probe("a schedule has left out an occurrence", view.skipped)


async def _asked(cluster: Cluster, row: Process) -> int:
    """When a process was asked to cancel for the first time; when it ended, if that was earlier."""
    messages = await cluster.client.store.messages([(row.id, 0)])
    return min([row.changed_at, *(one.at for one in messages if one.type is MessageType.CANCEL)])


def _instant(row: Process) -> int:
    return instant_of(datetime.fromisoformat(json.decode(row.attributes or b"{}")["scheduled_at"]), "the instant")


def _at_once(spans: list[tuple[int, int]]) -> int:
    """How many of these spans of time, from one instant to another, there are at once, at most."""
    moves = sorted(move for begin, end in spans for move in ((begin, 1), (end, -1)))
    most = running = 0
    for _, change in moves:
        running += change
        most = max(most, running)
    return most
