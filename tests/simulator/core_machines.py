"""Machines in every weather: each call once and in order, refused ones leave nothing, timers count, histories fold."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from perdure import Handle, Retry, limits, machine, step
from perdure.errors import CallRefused, CallUnanswered, IllegalMove, PerdureError, ProcessNotFound
from perdure.kernel.event import EventType
from perdure.kernel.process import Status
from perdure.store.base import Search
from perdure.testing.simulator import Cluster
from tests.simulator.misfortune import dismissed

TICKS = 4
SPOILT = "the till is spoilt"


class Short(machine.Refusal):
    """There is too little in the till."""


@step(retry=Retry(attempts=40, first=0.2, cap=2.0), timeout=30)
async def count(amount: int, seconds: float) -> int:
    """Take a while, and give back what was given."""
    await asyncio.sleep(seconds)
    return amount


class Till(machine.Machine):
    """A till that keeps every call that it has served, in order."""

    served: list[str] = machine.field(default_factory=list)
    heard: list[int] = machine.field(default_factory=list)
    total: int = 0
    ticks: int = 0
    mends: int = 0
    again: list[str] = machine.field(default_factory=list)

    @machine.init
    async def opened(self, amount: int) -> None:
        self.total = await count(amount, 0.1)
        machine.schedule(2)

    @machine.call
    async def add(self, name: str, amount: int, seconds: float) -> int:
        """Serve a call, at once or with steps; what has ended must not come here again."""
        if name in self.served:
            self.again.append(name)
        self.served.append(name)
        if seconds:
            self.total += await count(amount, seconds)
            await asyncio.sleep(0.1)
            await count(0, seconds / 4)
        else:
            self.total += amount
        if self.total < 0:
            raise Short(name)
        return len(self.served)

    @machine.signal
    async def tell(self, number: int) -> None:
        """Hear a number, and have a clock of one's own beside it."""
        self.heard.append(number)
        if number % 3 == 0:
            await asyncio.sleep(0.3)
            await count(0, 0.3)

    @machine.call
    def told(self) -> dict[str, Any]:
        """Everything."""
        return {
            "mends": self.mends,
            "served": self.served,
            "heard": self.heard,
            "total": self.total,
            "ticks": self.ticks,
            "again": self.again,
        }

    @machine.signal
    async def spoil(self) -> None:
        """Break, after a change that must not count."""
        self.total += await count(7_000_000, 0.2)
        raise ValueError(SPOILT)

    @machine.repair
    async def mended(self) -> None:
        """Somebody has put it right."""
        self.mends += await count(1, 0.2)

    @machine.timer
    async def tick(self) -> None:
        """So many times, some seconds apart."""
        self.ticks += await count(1, 0.2)
        if self.ticks < TICKS:
            machine.schedule(1.5)

    @machine.signal
    def close(self) -> None:
        """The end."""
        machine.complete(self.total)

    @machine.call
    def vanish(self, seconds: float) -> int:
        """The end, and nothing is left of it."""
        if seconds:
            machine.schedule_removal(seconds)
        else:
            machine.remove()
        return self.total


class Customer:
    """One who calls again and again, each time when the last call was answered; it notes what it was told."""

    def __init__(self, cluster: Cluster, handle: Handle[Any], name: str) -> None:
        self.cluster = cluster
        self.handle = handle
        self.name = name
        self.answers: dict[str, int] = {}
        self.refused: list[str] = []
        self.sum = 0
        self.spoils = 0

    async def shop(self, calls: int) -> None:
        """Make the calls, some of them twice under one key."""
        for number in range(calls):
            name = f"{self.name}/{number}"
            amount = self.cluster.pick((1, 10, -100_000))
            seconds = self.cluster.pick((0.0, 0.4, 1.5))
            for _ in range(self.cluster.pick((1, 1, 2))):
                await self._call(name, amount, seconds)
            if name in self.answers:
                self.sum += amount
            await self.handle.signal(Till.tell.options(key=name), number)
            if self.cluster.draw(6) == 5:
                self.spoils += 1
                await self.handle.signal(Till.spoil.options(key=f"{name} spoils"))

    async def _call(self, name: str, amount: int, seconds: float) -> None:
        add = Till.add.options(key=name)
        try:
            answer = await insisted(self.handle, add, name, amount, seconds)
        except CallRefused as refused:
            self.cluster.require("the_value_is_exact", refused.type == "Short", f"{name} was refused: {refused}")
            self.refused.append(name)
            return
        same = self.answers.setdefault(name, answer) == answer
        self.cluster.require("the_value_is_exact", same, f"{name} was answered in two ways")


async def insisted(handle: Handle[Any], method: Any, *args: Any) -> Any:
    """Ask again, under the same key, while the till is broken."""
    while True:
        try:
            return await handle.call(method, *args)
        except CallUnanswered:
            await asyncio.sleep(1)


async def repairing(cluster: Cluster, handles: list[Handle[Any]]) -> None:
    """Repair a till that is spoilt, whenever one is; nothing else may break it."""
    while True:
        for handle in handles:
            try:
                row = await cluster.client.row(handle.id)
            except ProcessNotFound:
                continue
            if row.status is Status.BROKEN:
                known = SPOILT in (row.error or b"").decode()
                cluster.require("everything_ends", known, f"a till is broken by {row.error!r}")
                with suppress(IllegalMove):  # the command before was carried out, and its answer was lost
                    await handle.repair(Till.mended)
        await asyncio.sleep(1)


async def tills(cluster: Cluster) -> None:
    """Some tills, some customers at each; at the end a till has served each call once, in the order of the answers."""
    before = limits.FOLDED_TURNS, limits.FOLDED_RECORDS
    limits.FOLDED_TURNS, limits.FOLDED_RECORDS = cluster.pick(((200, 1_000), (6, 1_000), (15, 10)))
    try:
        handles = [
            await cluster.client.start(Till.opened.options(key=f"till {n}"), 1_000)
            for n in range(cluster.pick((1, 2, 3)))
        ]
        customers = [
            Customer(cluster, handle, f"{n}{who}")
            for n, handle in enumerate(handles)
            for who in "ab"[: cluster.pick((2, 1))]
        ]
        person = asyncio.create_task(repairing(cluster, handles))
        await asyncio.gather(*(customer.shop(cluster.pick((3, 5, 7))) for customer in customers))
        for handle in handles:
            here = [customer for customer in customers if customer.handle is handle]
            told = await _rested(handle, sum(len(one.answers) + len(one.refused) for one in here))
            _judge(cluster, here, told)
            spoils = sum(one.spoils for one in here)
            cluster.require("effect_once", told["mends"] == spoils, f"{spoils} times spoilt, {told['mends']} mended")
            await _history(cluster, handle)
            await END[cluster.pick(tuple(END))](cluster, handle, told["total"])
        await dismissed(person)
    finally:
        limits.FOLDED_TURNS, limits.FOLDED_RECORDS = before


async def closed(cluster: Cluster, handle: Handle[Any], total: int) -> None:
    """A till ends with what is in it; its history stays."""
    await handle.signal(Till.close)
    cluster.require("the_value_is_exact", await handle.result() == total, "it ended with another sum")
    await _history(cluster, handle)


async def taken_away(cluster: Cluster, handle: Handle[Any], total: int) -> None:
    """A person takes a till away, once it has ended."""
    await closed(cluster, handle, total)
    await handle.remove(who="Ann")
    cluster.probe("a process was removed by a person")
    await _gone(cluster, handle)


async def forced_away(cluster: Cluster, handle: Handle[Any], total: int) -> None:
    """A person takes a till away from its worker."""
    await handle.remove(force=True, who="Ann")
    await _gone(cluster, handle)


async def vanished(cluster: Cluster, handle: Handle[Any], total: int) -> None:
    """A till removes itself, now or later; it has answered first."""
    began = cluster.loop.now
    try:
        answer = await insisted(handle, Till.vanish.options(key="vanish"), cluster.pick((0.0, 2.0)))
        cluster.require("the_value_is_exact", answer == total, f"it went with {answer}, not {total}")
    except ProcessNotFound:  # its answer went with it, before it had come
        stayed = cluster.loop.now - began >= limits.REMOVAL_SECONDS
        cluster.require("the_value_is_exact", stayed, "it went at once, and its last answer with it")
        cluster.probe("a machine was gone before its last answer had come")
    for _ in range(200):
        try:
            await cluster.client.row(handle.id)
        except ProcessNotFound:
            cluster.probe("a machine has removed itself")
            return await _gone(cluster, handle)
        await asyncio.sleep(1)
    raise PerdureError("a till does not go")


END = {"closed": closed, "taken away": taken_away, "forced away": forced_away, "vanished": vanished}
"""How a till ends."""


async def _gone(cluster: Cluster, handle: Handle[Any]) -> None:
    """Nothing of a till is left, nothing brings it back, and its key is free."""
    await asyncio.sleep(cluster.pick((0.0, 20.0)))  # its old workers have come to by then
    found = await cluster.client.store.search(Search(ids=(handle.id_bytes,)))
    left = await cluster.client.store.history(handle.id_bytes, 1)
    cluster.require("finished_is_final", not found and not left, "a till that was removed is there")
    again = await cluster.client.start(Till.opened.options(key=handle.key), 1_000)
    cluster.require("finished_is_final", again.created and again.id != handle.id, "its key was not given back")
    await again.signal(Till.close)
    await again.result()


async def _rested(handle: Handle[Any], most: int) -> dict[str, Any]:
    """What a till tells once all signals were heard and the timer has done its last."""
    for _ in range(200):
        told = await insisted(handle, Till.told)
        if told["ticks"] >= TICKS and len(told["heard"]) >= most // 2:
            await asyncio.sleep(3)
            return await insisted(handle, Till.told)
        await asyncio.sleep(1)
    raise PerdureError("a till does not come to rest")


def _judge(cluster: Cluster, customers: list[Customer], told: dict[str, Any]) -> None:
    served, answers = told["served"], {name: n for one in customers for name, n in one.answers.items()}
    cluster.require("effect_once", told["again"] == [], f"{told['again']} were run again after their end")
    in_order = all(served[number - 1] == name for name, number in answers.items())
    cluster.require(
        "effect_once", in_order and len(served) == len(answers), f"{served} was served, {answers} was answered"
    )
    for one in customers:
        mine = [name for name in served if name.startswith(one.name)]
        cluster.require("in_order", mine == list(one.answers), f"{mine} came in another order than {list(one.answers)}")
    total = 1_000 + sum(one.sum for one in customers)
    cluster.require("the_value_is_exact", told["total"] == total, f"the till has {told['total']}, not {total}")
    cluster.require("the_value_is_exact", told["ticks"] == TICKS, f"the timer has run {told['ticks']} times")
    numbers = sorted(n for one in customers for n in range(len(one.answers) + len(set(one.refused))))
    cluster.require("effect_once", sorted(told["heard"]) == numbers, f"{told['heard']} was heard of {numbers}")


async def _history(cluster: Cluster, handle: Handle[Any]) -> None:
    """No method is answered twice, in whichever runs, and no run is long where histories fold early."""
    row = await cluster.client.row(handle.id)
    answered: list[str] = []
    for run in range(1, row.run + 1):
        events = await handle.history(run)
        answered += [one.name for one in events if one.type in (EventType.CALL_ANSWERED, EventType.CALL_REFUSED)]
    cluster.require("effect_once", len(answered) == len(set(answered)), f"answered twice among {answered}")
    cluster.probe("a machine has folded its history", int(row.run > 1))
