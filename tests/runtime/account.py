"""An account: a table of the user's own in the store's database, steps that write there, and workflows that call them.

On SQLite these steps are ordinary functions, on PostgreSQL they are awaited; the workflows are told which to take.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from inspect import isawaitable
from typing import Any

import asyncpg
import pytest

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import receive, workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import StepError
from perdure.kernel.event import Event, EventType
from perdure.kernel.retry import Retry
from perdure.kernel.soundness import unsound
from perdure.store.base import Search
from perdure.turns.saga import saga
from tests.runtime.conftest import until
from tests.transactions.caller import address

hooks: dict[str, Callable[[], Any]] = {}
"""What else a booking does, once it has written."""
answers: dict[str, Any] = {}
"""What a booking answers, if not its own name in capitals."""

AGAIN = Retry(attempts=2, first=0.0)


class Account:
    """The table ``booking`` of a database, as somebody else sees it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.kind = "sqlite" if url.startswith("sqlite:") else "postgres"

    async def open(self) -> None:
        """Make the table."""
        await self.run("CREATE TABLE booking (what text, key text)")

    async def run(self, sql: str) -> list[Any]:
        """Run a statement in a transaction of its own."""
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as connection, connection:
                return connection.execute(sql).fetchall()
        connection = await asyncpg.connect(address(self.url), statement_cache_size=0)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    async def booked(self) -> list[str]:
        """What has been booked, in the order of the alphabet."""
        return [what for (what,) in await self.run("SELECT what FROM booking ORDER BY what")]

    async def keys(self) -> int:
        """How many different idempotency keys there are among the bookings."""
        return len(await self.run("SELECT DISTINCT key FROM booking"))


def write(what: str) -> None:
    connection = attempt().connection
    connection.execute("INSERT INTO booking VALUES (?, ?)", (what, attempt().idempotency_key))
    hooks.get(what, str)()


async def write_awaited(what: str) -> None:
    connection = attempt().connection
    await connection.execute("INSERT INTO booking VALUES ($1, $2)", what, attempt().idempotency_key)
    answer = hooks.get(what, str)()
    if isawaitable(answer):
        await answer


@step(transaction=True, retry=AGAIN, name="unbook")
def unbook_blocking(what: str, result: str | None) -> None:
    write(f"un{what}")


@step(transaction=True, retry=AGAIN, name="unbook")
async def unbook_awaited(what: str, result: str | None) -> None:
    await write_awaited(f"un{what}")


@step(transaction=True, retry=AGAIN, name="book")
def book_blocking(what: str) -> str:
    write(what)
    return answers.get(what, what.upper())


@step(transaction=True, retry=AGAIN, name="book")
async def book_awaited(what: str) -> str:
    await write_awaited(what)
    return answers.get(what, what.upper())


@step(transaction=True, retry=AGAIN, undo=unbook_blocking, name="reserve")
def reserve_blocking(what: str) -> str:
    write(what)
    return what.upper()


@step(transaction=True, retry=AGAIN, undo=unbook_awaited, name="reserve")
async def reserve_awaited(what: str) -> str:
    await write_awaited(what)
    return what.upper()


BOOK = {"sqlite": book_blocking, "postgres": book_awaited}
WRONG = {"sqlite": book_awaited, "postgres": book_blocking}
RESERVE = {"sqlite": reserve_blocking, "postgres": reserve_awaited}


@step(retry=Retry.NONE)
async def plainly(what: str) -> str:
    answer = hooks.get(what, str)()
    return str(await answer if isawaitable(answer) else answer)


@workflow
async def booking(kind: str, what: str) -> str:
    return await BOOK[kind](what)


@workflow
async def changing(kind: str, what: str) -> str:
    return await BOOK[kind](answers.get("changed", what))


@workflow
async def quick_booking(kind: str, what: str) -> str:
    return await BOOK[kind].options(timeout=0.2)(what)


@workflow
async def mistaken(kind: str) -> str:
    try:
        return await WRONG[kind]("wrong")
    except StepError as error:
        return f"{error.type} {error.attempts}: {error}"


@workflow
async def two_bookings(kind: str, one: str, other: str) -> list[str]:
    first = await BOOK[kind](one)
    told = await receive("go on", str)
    return [first, told, await BOOK[kind](other)]


@workflow
async def booked_and_done(kind: str, one: str, other: str) -> list[str]:
    return [await BOOK[kind](one), await plainly(other)]


@workflow
async def booked_beside(kind: str, one: str, other: str) -> list[str]:
    return await asyncio.gather(BOOK[kind](one), plainly(other))


@workflow
async def trip(kind: str, whats: list[str]) -> str:
    async with saga():
        for what in whats:
            await RESERVE[kind](what)
        await receive("go on", str)
    return "gone"


FLOWS = [booking, changing, quick_booking, mistaken, two_bookings, booked_and_done, booked_beside, trip]


def fail_once(error: BaseException) -> Callable[[], None]:
    left = [error]

    def hook() -> None:
        if left:
            raise left.pop()

    return hook


def fail(error: BaseException) -> None:
    raise error


async def sound(engine: Engine, id: bytes) -> None:
    """The record of a process breaks no law."""
    [row] = await engine.store.search(Search(ids=(id,)))
    events = await engine.store.history(id, row.run, limit=row.events or 1)
    assert unsound(row, events, await engine.store.messages([(id, 0)]), await engine.store.now()) == []


async def events(engine: Engine, id: str, type: EventType) -> list[Event]:
    return [event for event in await engine.process(id).history() if event.type is type]


def awaited(engine: Engine, handle: Any) -> list[str]:
    """The steps whose answers the code of a process in hand still waits for; the other answers are recorded."""
    instance = engine.worker.scheduler.instances.get(handle.id_bytes)  # type: ignore[union-attr]
    return [] if instance is None else [name for name, _ in instance.loop.open]


async def cancelled(engine: Engine, handle: Any) -> None:
    """Ask the process to cancel; on SQLite nobody else can write while its step does, so its code is told here."""
    if engine.store.url.startswith("sqlite"):
        instance = engine.worker.scheduler.instances[handle.id_bytes]  # type: ignore[union-attr]
        [attempt_run] = instance.steps.in_flight.values()
        instance.loop.root.cancel()
        instance.loop.run(instance.at)  # a turn runs the code only if there is something for the history
        engine.worker.scheduler.feed(instance)  # type: ignore[union-attr]
        await until(lambda: attempt_run.over)
    else:
        await handle.cancel()


async def lingering(seen: list[str]) -> None:
    """Needs a while to end when it is cancelled."""
    try:
        await asyncio.Event().wait()
    finally:
        for _ in range(50):
            await asyncio.sleep(0)
        seen.append("ended")


async def turned(event: threading.Event) -> None:
    """Let the event loop turn until the event has come."""
    await until(event.is_set)


async def booked_unheard(engine: Engine, patch: pytest.MonkeyPatch, flow: Any, *args: Any) -> Handle[Any]:
    """Start a process, and wait until its step has booked, which its worker does not hear."""
    told = asyncio.Event()
    patch.setattr(engine.worker.scheduler.agent.transactional_steps, "_tell", lambda *_: told.set())  # type: ignore[union-attr]
    patch.setattr(engine.worker.inbox, "_read", deaf)  # type: ignore[union-attr]
    handle = await engine.start(flow, *args)
    await told.wait()
    return handle


async def deaf(instances: Any, waiting: Any) -> None:
    """Reads no message for anybody."""
