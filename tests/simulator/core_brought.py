"""Calls that a machine hears before they are stored: each counts once or not at all, whatever comes in between."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from perdure import Retry, machine, step, workflow
from perdure.errors import PerdureError
from perdure.testing.simulator import Cluster
from perdure.testing.simulator.violation import Violation
from tests.simulator.core_callers import Office, folding, lets_go_on, weather
from tests.simulator.misfortune import dismissed, result_of

PATIENCE = 150
"""So many seconds must suffice for an answer, in any weather."""


BEAT = 0.1


class Asked:
    """What was asked of each list in this history, and under which number it was answered."""

    texts: ClassVar[dict[str, set[str]]] = {}
    numbers: ClassVar[dict[str, dict[str, int]]] = {}
    attempts: ClassVar[int] = 0

    @classmethod
    def forget(cls) -> None:
        """Begin a history."""
        cls.texts, cls.numbers, cls.attempts = {}, {}, 0


@step(retry=Retry(attempts=500, first=0.1, cap=1.0), timeout=20)
async def stamped(text: str) -> str:
    return f"{text}!"


class List(machine.Machine):
    """It keeps what it was told, in order."""

    texts: list[str] = machine.field(default_factory=list)

    @machine.init
    def opened(self) -> None:
        """It is empty."""

    @machine.call
    def add(self, text: str) -> int:
        """Add a text; the answer is how many there are."""
        self.texts = [*self.texts, text]
        return len(self.texts)

    @machine.call
    async def add_slowly(self, text: str) -> int:
        """Add a text once a step has stamped it."""
        self.texts = [*self.texts, (await stamped(text)).rstrip("!")]
        return len(self.texts)

    @machine.signal
    def note(self, text: str) -> None:
        """Add a text that nobody waits for."""
        self.texts = [*self.texts, text]

    @machine.call
    def read(self) -> list[str]:
        """All texts."""
        return self.texts


async def on_the_beat() -> None:
    """Wait for the next tenth of a second: whoever does so calls at the same moment."""
    await asyncio.sleep(BEAT - Office.cluster.loop.now % BEAT)


async def added(list: Any, text: str, *, slowly: bool, keyed: bool) -> None:
    """Ask once: an answer comes, or an error; without a key the caller waits as long as it takes."""
    Asked.texts.setdefault(list.id, set()).add(text)
    method = (List.add_slowly if slowly else List.add).options(
        key=text if keyed else None, timeout=10 if keyed else None
    )
    try:
        async with asyncio.timeout(PATIENCE):
            number = await list.call(method, text)
    except PerdureError:
        return
    except TimeoutError:
        if not keyed:
            text = f"nobody has told what became of {text}"
            Office.cluster.loop.fail(Violation("everything_ends", text))
        return
    Asked.numbers.setdefault(list.id, {})[text] = number


@step(retry=Retry(attempts=500, first=0.1, cap=1.0), timeout=300)
async def told(list: str, name: str, pauses: list[float]) -> int:
    """Add texts from where the list may live, with pauses; another attempt adds others."""
    Asked.attempts += 1
    attempt = Asked.attempts
    for n, pause in enumerate(pauses):
        text = f"{name}/{attempt}/{n}"
        await added(Office.engine().process(list), text, slowly=n % 5 == 4, keyed=n % 3 == 2)
        await asyncio.sleep(pause)
        if n % 2:
            await on_the_beat()
    return attempt


@workflow
async def teller(list: str, name: str, pauses: list[float]) -> int:
    """Have texts added by the worker that runs this."""
    return await told(list, name, pauses)


async def lists(cluster: Cluster) -> None:
    """Some lists, told by few at a time; at the end each text stands at most once, and where it was answered."""
    with folding(cluster):
        await _told(cluster)


async def _told(cluster: Cluster) -> None:
    Asked.forget()
    Office.cluster = cluster
    books = [await cluster.client.start(List.opened) for _ in range(cluster.pick((1, 2)))]
    person = asyncio.create_task(lets_go_on(cluster, books))
    tellers = []
    for book in books:
        for name in range(cluster.pick((1, 2))):
            pauses = [cluster.pick((0.1, 0.05, 0.3, 1.5, 6.0)) for _ in range(cluster.pick((15, 5, 30)))]
            tellers.append(await cluster.client.start(teller, book.id, f"{name}", pauses))
    others = [asyncio.create_task(_from_elsewhere(cluster, book)) for book in books]
    for begun in tellers:
        await result_of(cluster, begun)
    await asyncio.gather(*others)
    for book in books:
        stands = await book.call(List.read)
        asked, numbers = Asked.texts.get(book.id, set()), Asked.numbers.get(book.id, {})
        once = len(set(stands)) == len(stands) and asked.issuperset(stands)
        cluster.require("effect_once", once, f"{stands} stands there, and {sorted(asked)} was asked")
        right = all(stands[number - 1] == text for text, number in numbers.items())
        cluster.require("in_order", right, f"{stands} stands there, and {numbers} was answered")
        await book.terminate(why="all is told")
    await dismissed(person)
    counters = [engine.telemetry.counters for engine in cluster.engines]
    cluster.probe("a call was heard before it was stored", sum(one["calls_brought"] for one in counters))
    cluster.probe("a process at rest was claimed for a call", sum(one["calls_recalled"] for one in counters))
    cluster.probe("such a call was turned away", sum(one["calls_turned_away"] for one in counters))


async def _from_elsewhere(cluster: Cluster, book: Any) -> None:
    """Somebody whose engine does not hold the list adds to it now and then."""
    for n in range(cluster.pick((5, 0, 15))):
        await asyncio.sleep(cluster.pick((1.1, 0.3, 3.0)))
        await on_the_beat()
        if cluster.draw(2):
            await added(book, f"client/{n}", slowly=n % 4 == 3, keyed=n % 2 == 1)
        else:
            Asked.texts.setdefault(book.id, set()).add(f"note/{n}")
            await book.signal(List.note.options(key=f"{n}"), f"note/{n}")


lists.weather = weather  # type: ignore[attr-defined]
