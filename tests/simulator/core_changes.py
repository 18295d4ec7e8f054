"""People edit, fork and remove what others are told of, what waits for a breaker, and machines, in every weather."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, ClassVar

from msgspec import Struct, json

from perdure import Breaker, Handle, Retry, machine, step, workflow
from perdure.errors import IllegalMove, ProcessNotFound, StoreUnavailable
from perdure.kernel.notice import RECEIVED
from perdure.kernel.process import FINAL, Status
from perdure.testing.simulator import Cluster
from tests.simulator.core_notices import Desk, changes, ended
from tests.simulator.misfortune import by_the_weather_alone, result_of

EDITED = 1_000
"""So much is added to the number of a crate whose input is edited."""

carrier = Breaker("carrier", failures=2, within=60, open_for=1.5)


class Road:
    """Whether the carrier can get through."""

    closed: ClassVar[bool] = False


@step(retry=Retry(attempts=500, first=0.2, cap=1.0), timeout=20, breaker=carrier)
async def moved(number: int, seconds: float) -> int:
    """Take a while; while the road is closed nothing moves."""
    await asyncio.sleep(seconds)
    if Road.closed:
        raise ConnectionError("the road is closed")
    return number


@workflow
async def crate(number: int, seconds: float) -> int:
    """Moved twice, with a rest."""
    here = await moved(number, seconds)
    await asyncio.sleep(seconds)
    return await moved(here, seconds)


class Shelf(machine.Machine):
    """What stands on it."""

    first: int = 0
    more: list[int] = machine.field(default_factory=list)

    @machine.init
    async def built(self, first: int) -> None:
        """It begins with one crate."""
        self.first = await moved(first, 0.1)

    @machine.call
    async def put(self, number: int) -> int:
        """One more."""
        self.more.append(await moved(number, 0.2))
        return len(self.more)

    @machine.call
    def seen(self) -> list[int]:
        """All."""
        return [self.first, *self.more]

    @machine.signal
    def cleared(self) -> None:
        """The end."""
        machine.complete([self.first, *self.more])


class Sent(Struct):
    """What the scenario knows of a crate that it has sent."""

    number: int
    desk: Handle[None]
    handle: Handle[int]
    inputs: list[int]
    sure: bool = True
    removed: bool = False
    forks: list[Handle[int]] = []


async def meddling(cluster: Cluster) -> None:
    """Some crates, some shelves, a road that is closed for a while, and people; desks are told what has come of it."""
    Road.closed = cluster.draw(2) == 1
    desks = [await cluster.client.start(Desk.opened) for _ in range(cluster.pick((1, 2)))]
    every: list[Sent] = []
    for number in range(cluster.pick((3, 5, 8))):
        desk = cluster.pick(desks)
        options = crate.options(reply_to=desk, delay=cluster.pick((None, 2, 5)))
        handle = await cluster.client.start(options, number, cluster.pick((0.1, 0.5, 1.5)))
        every.append(Sent(number, desk, handle, [number]))
    shelves = asyncio.create_task(_shelved(cluster))
    people = asyncio.gather(*(_meddled(cluster, one) for one in every))
    await asyncio.sleep(cluster.pick((1, 4)))
    Road.closed = False
    await people
    await ended(cluster, [one.handle for one in every if not one.removed])
    for one in every:
        await _exact(cluster, one)
    for desk in desks:
        await _told(cluster, desk, [one for one in every if one.desk is desk])
        await desk.terminate(why="all is said")
    await shelves


async def _meddled(cluster: Cluster, one: Sent) -> None:
    """What a person does to a crate, perhaps twice."""
    for _ in range(cluster.pick((1, 2))):
        await asyncio.sleep(cluster.pick((0, 0.3, 1.0, 3.0)))
        verb = cluster.draw(6)
        with suppress(IllegalMove, ProcessNotFound, StoreUnavailable):
            if verb == 0:
                await _edited(one, restart=False)
            elif verb == 1:
                await one.handle.hold(who="anna")
                await asyncio.sleep(cluster.pick((0, 0.5)))
                try:
                    await _edited(one, restart=False)
                finally:
                    await asyncio.sleep(0.2)
                    await one.handle.resume(who="anna")
            elif verb == 2:
                await _edited(one, restart=True)
            elif verb == 3:
                one.forks = [*one.forks, await one.handle.fork()]
            elif verb == 4:
                one.removed = True
                await one.handle.remove(force=True, who="anna")


async def _edited(one: Sent, *, restart: bool) -> None:
    """Give it another number; where the command is refused, its answer may have been lost."""
    new = one.inputs[-1] + EDITED
    one.inputs, one.sure = [*one.inputs, new], False
    await one.handle.edit_input([new, 0.3], restart=restart, who="anna")
    one.inputs, one.sure = [new], True


async def _exact(cluster: Cluster, one: Sent) -> None:
    """A crate has the number that it was given last, and so has each fork the number that it was forked with."""
    told = {one.number + n * EDITED for n in range(3)}
    for fork in one.forks:
        came = await result_of(cluster, fork)
        cluster.require("the_value_is_exact", came in told, f"a fork of {one.number} came as {came}")
        view = await fork.status()
        cluster.require("people_are_told_the_truth", view.reply_to is None, f"a fork of {one.number} tells a desk")
    if one.removed:
        with suppress(ProcessNotFound):
            row = await cluster.client.row(one.handle.id)
            cluster.require("finished_is_final", False, f"{one.number} was removed, and is {row.status}")
        cluster.probe("a process with a reply address was removed")
        return
    came = await result_of(cluster, one.handle)
    cluster.require("the_value_is_exact", came in one.inputs, f"{one.number} came as {came}, not as {one.inputs}")


async def _told(cluster: Cluster, desk: Handle[None], every: list[Sent]) -> None:
    """The desk was told of each crate what its histories say, of a removed one its end, and of forks nothing."""
    wanted = {one.handle.id: await changes(cluster, one.handle) for one in every if not one.removed}
    gone = {one.handle.id for one in every if one.removed}
    ends = {status.value for status in FINAL}
    told: dict[str, list[str]] = {}
    for _ in range(120):
        row = await cluster.client.row(desk.id)
        if row.status is Status.BROKEN:
            cluster.require("everything_ends", by_the_weather_alone(cluster, row), f"a desk is broken: {row.error!r}")
            with suppress(IllegalMove):
                await desk.retry(who="anna")
        told = json.decode(row.state or b"{}").get("told", {})
        whole = all(len(told.get(id, ())) >= len(changed) for id, changed in wanted.items())
        if whole and all(told.get(id, [""])[-1] in ends for id in gone) and row.inbox == row.seen and not row.owner:
            break
        await asyncio.sleep(1)
    for id, changed in wanted.items():
        cluster.require("accepted_is_kept", told.get(id) == changed, f"of {id} was told {told.get(id)}, not {changed}")
    for id in gone:
        heard = told.get(id, [])
        right = heard[:1] == [RECEIVED] and heard[-1] in ends
        cluster.require("accepted_is_kept", right, f"of {id}, which was removed, was told {heard}")
    strangers = told.keys() - wanted.keys() - gone
    cluster.require("people_are_told_the_truth", not strangers, f"the desk is told of {strangers}, which are forks")


async def _shelved(cluster: Cluster) -> None:
    """A shelf that has not begun can be edited; once it has, it can be neither edited nor forked, but removed."""
    shelf = await cluster.client.start(Shelf.built.options(delay=cluster.pick((None, 3))), 1)
    first = {1, EDITED}
    with suppress(IllegalMove):  # it has begun meanwhile
        await shelf.edit_input([EDITED], who="anna")
        first = {EDITED}
    asked: Any = await shelf.call(Shelf.put.options(key="one"), 2)
    cluster.require("the_value_is_exact", asked == 1, f"the first one was number {asked}")
    await asyncio.sleep(cluster.pick((0, 0.3, 2.0)))
    refusals: dict[str, Callable[[], Awaitable[Any]]] = {
        "a fork": shelf.fork,
        "an edit": lambda: shelf.edit_input([7]),
        "an edit with a restart": lambda: shelf.edit_input([7], restart=True),
    }
    for name, refused in refusals.items():
        with suppress(IllegalMove):
            await refused()
            cluster.require("people_are_told_the_truth", False, f"{name} was made of a machine that has begun")
    stands = await shelf.call(Shelf.seen)
    cluster.require("the_value_is_exact", stands[0] in first and stands[1:] == [2], f"{stands} stood there")
    if cluster.draw(2):
        await shelf.remove(force=True, who="anna")
        return
    await shelf.signal(Shelf.cleared)
    came = await result_of(cluster, shelf)
    cluster.require("the_value_is_exact", came == stands, f"{came} was taken away, {stands} stood there")
