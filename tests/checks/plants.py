"""Planted faults: for each check, a process at rest and the SQL that damages its rows behind the engine's back."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from perdure import Engine, NamedWorkflow
from perdure.kernel.names import id_bytes
from perdure.kernel.process import Status
from perdure.store.base import Search
from tests.checks import shop
from tests.runtime.conftest import LIMIT, until_row

Prepare = Callable[[Engine], Awaitable[str]]
CONSTRAINTS = """
    SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE conrelid = 'perdure.process'::regclass AND contype = 'c'
"""
AS_BEFORE = (
    "UPDATE pg_constraint SET convalidated = true WHERE conrelid = 'perdure.process'::regclass AND contype = 'c'"
)
"""The database believes again that every row keeps the constraints, as after damage to its files."""


@dataclass(frozen=True)
class Plant:
    """A fault: of which process, by which SQL; and what a fix makes of it.

    In the SQL ``:id`` is the process, ``:far`` a time in three years. ``after`` is the status of the process behind the
    fix, None if there is no safe one. ``remains`` says that the fault stays although it was mended: what is lost
    cannot be made up, but no code runs on it.
    """

    prepare: Prepare
    sql: str
    after: Status | None = None
    remains: bool = False
    says: str = ""


async def resting(engine: Engine) -> str:
    """An order that has been charged and waits for a signal."""
    handle = await engine.start(shop.order, "A-1")
    await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting and row.events)
    return handle.id


async def held(engine: Engine) -> str:
    """The same, held by a person."""
    id = await resting(engine)
    await engine.process(id).hold(who="ann", why="lunch")
    return id


async def over(engine: Engine) -> str:
    """An order that has ended."""
    id = await resting(engine)
    await engine.process(id).signal("go", None)
    await engine.process(id).result(LIMIT)
    return id


async def signalled(engine: Engine) -> str:
    """A delayed order that has begun nothing, and in whose inbox a signal waits; no worker hosts it."""
    handle = await engine.start(NamedWorkflow("nowhere"), "A-1")
    await handle.signal("go", None)
    return handle.id


async def parent(engine: Engine) -> str:
    """A sale that waits for its child."""
    handle = await engine.start(shop.sale, "A-1")
    await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting)
    return handle.id


async def child_of(engine: Engine, id: str) -> str:
    """The child of a sale."""
    [row] = await engine.store.search(Search(kind="delivery"))
    return str(UUID(bytes=row.id))


async def done_child(engine: Engine) -> str:
    """A sale that is held, while its child has ended."""
    id = await parent(engine)
    await engine.process(id).hold(who="ann", why="lunch")
    delivery = engine.process(await child_of(engine, id))
    await delivery.signal("go", None)
    await delivery.result(LIMIT)
    return id


async def queued(engine: Engine) -> str:
    """A queued step that waits for a worker, of a dispatch that waits for it."""
    handle = await engine.start(shop.dispatch, "A-1")
    await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting)
    [row] = await engine.store.search(Search(kind="@parcels"))
    return str(UUID(bytes=row.id))


PLANTS: dict[str, Plant] = {
    "unfinished_is_due": Plant(
        resting, "UPDATE process SET due_at = NULL WHERE id = :id", Status.RUNNING, says="nobody will ever look at it"
    ),
    "one_owner": Plant(held, "UPDATE process SET owner = :id WHERE id = :id", Status.HELD, says="has an owner"),
    "one_transaction": Plant(
        resting, "UPDATE process SET deaths = 7 WHERE id = :id", Status.BROKEN, remains=True, says="records only 0"
    ),
    "history_is_gapless": Plant(
        resting, "DELETE FROM event WHERE process = :id AND number = 1", Status.BROKEN, remains=True,
        says="the row counts",
    ),
    "result_once": Plant(
        resting,
        "INSERT INTO event (process, run, number, turn, type, at, place, name, token, version) SELECT process, run, "
        "number + 1, turn, type, at, place, name, token, version FROM event WHERE process = :id AND number = 1; "
        "UPDATE process SET events = events + 1 WHERE id = :id",
        Status.BROKEN, remains=True, says="has 2 results",
    ),
    "nothing_unheard": Plant(
        signalled, "UPDATE process SET due_at = :far, reminder = true WHERE id = :id", Status.RUNNING,
        says="are unheard",
    ),
    "no_early_timer": Plant(
        resting, "UPDATE event SET at = :far WHERE process = :id", says="which has not come yet"
    ),
    "accepted_is_kept": Plant(
        signalled, "DELETE FROM message WHERE process = :id", Status.BROKEN, remains=True, says="missing: [1]"
    ),
    "operators_use_the_front_door": Plant(
        held, "UPDATE event SET payload = NULL WHERE process = :id AND number = 2", says="does not say who"
    ),
    "finished_is_final": Plant(
        over, "UPDATE process SET reminder = true WHERE id = :id", Status.COMPLETED, says="still has a reminder"
    ),
    "record_is_readable": Plant(
        resting, "UPDATE process SET attributes = :list WHERE id = :id", Status.BROKEN, remains=True,
        says="holds no JSON object",
    ),
    "owner_is_known": Plant(
        resting, "UPDATE process SET owner = :id, due_at = :far, reminder = false WHERE id = :id", Status.RUNNING,
        says="has ever been here",
    ),
    "reminder_is_near": Plant(
        resting, "UPDATE process SET due_at = :far WHERE id = :id", Status.RUNNING, says="looked at again in"
    ),
    "child_is_there": Plant(
        parent,
        "DELETE FROM event WHERE process IN (SELECT id FROM process WHERE parent = :id); "
        "DELETE FROM message WHERE process IN (SELECT id FROM process WHERE parent = :id); "
        "DELETE FROM process WHERE parent = :id",
        Status.BROKEN, remains=True, says="which is not there",
    ),
    "parent_is_told": Plant(
        done_child,
        "DELETE FROM message WHERE process = :id; UPDATE process SET inbox = seen WHERE id = :id", Status.HELD,
        says="its outcome is not in the inbox",
    ),
    "task_has_parent": Plant(
        queued,
        "DELETE FROM event WHERE process IN (SELECT parent FROM process WHERE id = :id); "
        "DELETE FROM process WHERE id IN (SELECT parent FROM process WHERE id = :id)",
        Status.RUNNING, says="is not there any more",
    ),
}  # fmt: skip
"""By the name of the check."""


async def sow(url: str, id: str, sql: str) -> None:
    """Carry out the SQL with a connection of nobody's, past every constraint."""
    far = 3 * 365 * 24 * 3600
    if url.startswith("sqlite"):
        raw = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        try:
            raw.execute("PRAGMA ignore_check_constraints = ON")
            raw.execute("PRAGMA foreign_keys = OFF")
            (now,) = raw.execute("SELECT at FROM clock").fetchone()
            for one in sql.split("; "):
                raw.execute(one, {"id": id_bytes(id), "far": now + far * 1_000_000, "list": b"[1]"})
        finally:
            raw.close()
        return
    outside = await asyncpg.connect(url)
    try:
        async with outside.transaction():
            checks = await outside.fetch(CONSTRAINTS)
            for name, _ in checks:
                await outside.execute(f"ALTER TABLE perdure.process DROP CONSTRAINT {name}")
            for one in sql.split("; "):
                mine = re.sub(r"\b(FROM|UPDATE|INTO) (process|event|message)\b", r"\1 perdure.\2", one)
                mine = mine.replace(":far", f"perdure.now() + interval '{far} s'").replace(":list", "'[1]'")
                await outside.execute(mine.replace(":id", "$1::uuid"), UUID(id))
            for name, text in checks:
                await outside.execute(f"ALTER TABLE perdure.process ADD CONSTRAINT {name} {text} NOT VALID")
            await outside.execute(AS_BEFORE)
    finally:
        await outside.close()


async def row_of(engine: Engine, id: str) -> Status | None:
    """The status of the process as it is now."""
    with suppress(Exception):
        return (await engine.row(id)).status
    return None
