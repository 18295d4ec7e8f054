"""Calls from where the machine lives: steps call machines that their own worker may hold, in every weather."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

from perdure import Retry, limits, machine, step, workflow
from perdure.engine import Engine
from perdure.errors import CallUnanswered, Unavailable
from perdure.kernel.process import Status
from perdure.testing.simulator import Cluster
from perdure.testing.simulator.choice import Choices
from perdure.testing.simulator.swarm import Swarm
from tests.simulator.misfortune import by_the_weather_alone, dismissed, result_of


class Office:
    """Where the engine of the worker is found that runs a step."""

    cluster: ClassVar[Cluster]

    @classmethod
    def engine(cls) -> Engine:
        """The engine here, which may be that of a quarantine worker."""
        life = cls.cluster.loop.current()
        (engine,) = [node.built for node in cls.cluster.workers if node.life is life and node.built is not None]
        return engine


class Book(machine.Machine):
    """It keeps what it was told, in order."""

    names: list[str] = machine.field(default_factory=list)

    @machine.init
    def opened(self) -> None:
        """It is empty."""

    @machine.call
    async def write(self, name: str, seconds: float) -> int:
        """Write a name; the answer is how many there are."""
        self.names = [*self.names, name]
        if seconds:
            await asyncio.sleep(seconds)
        return len(self.names)

    @machine.call
    def read(self) -> list[str]:
        """All names."""
        return self.names


@step(retry=Retry(attempts=500, first=0.1, cap=1.0), timeout=30)
async def asked(book: str, name: str, seconds: float) -> int:
    """Call the book from here, under a key of its own: each attempt asks for the same."""
    try:
        return await Office.engine().process(book).call(Book.write.options(key=name, timeout=20), name, seconds)
    except CallUnanswered:
        raise Unavailable from None


@workflow
async def writer(book: str, name: str, calls: int, seconds: float, together: bool) -> list[int]:
    """Have so many names written, one after the other or all at once."""
    asks = [asked(book, f"{name}/{n}", seconds if n % 3 == 0 else 0.0) for n in range(calls)]
    return list(await asyncio.gather(*asks)) if together else [await one for one in asks]


@contextmanager
def folding(cluster: Cluster) -> Iterator[None]:
    """Histories of machines fold early in some histories, by turns or by methods."""
    before = limits.FOLDED_TURNS, limits.FOLDED_RECORDS
    limits.FOLDED_TURNS, limits.FOLDED_RECORDS = cluster.pick(((200, 1_000), (4, 1_000), (15, 10)))
    try:
        yield
    finally:
        limits.FOLDED_TURNS, limits.FOLDED_RECORDS = before


async def offices(cluster: Cluster) -> None:
    """Some books, some writers of each; at the end each name stands once, where its writer was told that it stands."""
    with folding(cluster):
        await _written(cluster)


async def _written(cluster: Cluster) -> None:
    Office.cluster = cluster
    books = [await cluster.client.start(Book.opened) for _ in range(cluster.pick((1, 2)))]
    person = asyncio.create_task(lets_go_on(cluster, books))
    writers: list[tuple[Any, str, int, Any]] = []
    for number in range(cluster.pick((2, 3, 5))):
        book, name, calls = cluster.pick(books), f"{number}", cluster.pick((4, 8, 2))
        seconds, together = cluster.pick((0.0, 0.1, 0.7)), cluster.draw(2) == 1
        begun = await cluster.client.start(writer, book.id, name, calls, seconds, together)
        writers.append((book, name, calls, begun))
    names: dict[str, dict[str, int]] = {book.id: {} for book in books}
    for book, name, calls, begun in writers:
        numbers = await result_of(cluster, begun)
        names[book.id] |= {f"{name}/{n}": numbers[n] for n in range(calls)}
    for book in books:
        stands = await book.call(Book.read)
        told = names[book.id]
        cluster.require("effect_once", sorted(stands) == sorted(told), f"{stands} stands there, {list(told)} was asked")
        right = all(stands[number - 1] == name for name, number in told.items())
        cluster.require("in_order", right, f"{stands} stands there, and {told} was answered")
        await book.terminate(why="all is written")
    await dismissed(person)


async def lets_go_on(cluster: Cluster, books: list[Any]) -> None:
    """A person lets a book go on that the weather alone has parked."""
    while True:
        for book in books:
            row = await cluster.client.row(book.id)
            if row.status is Status.BROKEN:
                innocent = by_the_weather_alone(cluster, row)
                cluster.require("everything_ends", innocent, f"a book is broken: {row.error!r}")
                await book.retry(who="anna")
        await asyncio.sleep(1)


def weather(choices: Choices) -> Swarm:
    """Any weather; but each worker has room for all, since writers that fill it would wait for books for ever."""
    drawn = Swarm.drawn(choices)
    return replace(drawn, options=replace(drawn.options, in_flight=50))


offices.weather = weather  # type: ignore[attr-defined]
