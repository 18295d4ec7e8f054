"""Write the histories of this release: ``python -m tests.golden.record``; what is there already stays as it is."""

from __future__ import annotations

import asyncio
import sys
import tomllib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from perdure.engine import Engine
from perdure.errors import CallRefused, ProcessError
from perdure.kernel.notice import SIGNAL
from perdure.kernel.process import Process
from tests.golden import flow
from tests.golden.page import FOLDER, Page, checked, known
from tests.notices.server import Server

LIMIT = 20.0
Scene = Callable[[Engine], Awaitable[str]]


def plain(workflow: Any, *args: Any, **kwargs: Any) -> Scene:
    """A process that needs nobody to come to its end."""

    async def harness(engine: Engine) -> str:
        return (await engine.start(workflow, *args, **kwargs)).id

    return harness


async def _signals(engine: Engine) -> str:
    handle = await engine.start(flow.signals)
    await handle.signal("name", "Ann")
    await _until(engine, handle.id, lambda row: row.events >= 2)
    await handle.signal("number", 7)
    return handle.id


async def _cancelled(engine: Engine) -> str:
    handle = await engine.start(flow.cancelled)
    await _until(engine, handle.id, lambda row: row.owner is None)
    await handle.cancel(who="Ann", why="no more")
    return handle.id


async def _renewed(engine: Engine) -> str:
    handle = await engine.start(flow.renewed, 2, [])
    for name in ("Ann", "Ben", "Cid"):
        await handle.signal("name", name)
    for _ in range(3):
        await handle.signal("go")
    return handle.id


async def _calls(engine: Engine) -> str:
    handle = await engine.start(flow.calls)
    await handle.call("ask", 1)
    for wrong in (10, "two"):
        with suppress(CallRefused):
            await handle.call("ask", wrong)
    await handle.signal("ask", 0)
    return handle.id


async def _machine(engine: Engine) -> str:
    handle = await engine.start(flow.Till.opened, "Ann")
    await handle.call(flow.Till.put, 7)
    await handle.signal(flow.Till.noted, "a slip")
    asking = asyncio.create_task(handle.call(flow.Till.counted))
    await _until(engine, handle.id, lambda row: row.awaiting is not None and flow.nowhere.name in row.awaiting)
    asking.cancel()
    return handle.id


async def _webhook(engine: Engine) -> str:
    """Of three processes the first one's notices are not taken for now, the second's are, and the third's never."""
    with Server() as server:
        server.answer = lambda posted: {"a": 503, "b": 200, "c": 400}[posted.notice["process"]]
        webhook = engine.process(await engine.webhook(server.url))
        for number, process in enumerate("aabbc", 1):
            told = {"id": f"{number}", "status": "received", "process": process, "kind": "parcel", "run": 1}
            await webhook.signal(SIGNAL, told)
            await _until(engine, webhook.id, lambda row, number=number: row.seen == number)  # type: ignore[misc]
        await _until(engine, webhook.id, lambda row: row.state == b'{"delivered":2,"given_up":1}')
    return webhook.id


SCENES: dict[str, Scene] = {
    "sequence": plain(flow.sequence, 3, times=3),
    "chance": plain(flow.chance),
    "gather": plain(flow.gather, [1, 2, 3]),
    "group": plain(flow.group),
    "signals": _signals,
    "cancelled": _cancelled,
    "retries": plain(flow.retries),
    "children": plain(flow.children),
    "queue": plain(flow.queue),
    "undone": plain(flow.undone),
    "patches": plain(flow.patches),
    "renewed": _renewed,
    "calls": _calls,
    "published": plain(flow.published, 3),
    "versions": plain(flow.versions, 4),
    "machine": _machine,
    "paid": plain(flow.paid),
    "again": plain(flow.again, 7),
    "webhook": _webhook,
}
UNFINISHED = {"machine", "webhook"}
"""Scenes that are kept as they stand in the middle."""


async def _until(engine: Engine, id: str, true: Callable[[Process], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not true(await engine.row(id)):
            await asyncio.sleep(0.001)


async def _lived(name: str, engine: Engine) -> list[Page]:
    id = await SCENES[name](engine)
    if name not in UNFINISHED:
        with suppress(ProcessError):
            await engine.process(id).result(timeout=LIMIT)
    row = await engine.row(id)
    messages = tuple(await engine.store.messages([(row.id, 0)]))
    pages = []
    for run in {1, row.run}:
        events = tuple(await engine.store.history(row.id, run))
        opened_at = row.opened_at if run == row.run else row.created_at
        pages.append(Page.of(replace(row, run=run, opened_at=opened_at), events, messages))
    return pages


async def record(folder: str) -> int:
    """Live through every scene of which the release has no page yet; answers how many were written."""
    written = 0
    async with Engine("sqlite://:memory:", work=True, workflows=known(), queues=["golden"]) as engine:
        for name in SCENES:
            if list((FOLDER / folder).glob(f"{name}-*.json")):
                print(f"{folder}/{name} is there already and stays as it is", file=sys.stderr)
                continue
            for page in await _lived(name, engine):
                (FOLDER / folder).mkdir(exist_ok=True)
                page = checked(page)
                (FOLDER / folder / f"{name}-{page.process.run}.json").write_bytes(page.encode())
                written += 1
    return written


def release() -> str:
    """The version that this tree will be released as."""
    project = tomllib.loads((FOLDER.parent.parent / "pyproject.toml").read_text())
    return str(project["project"]["version"])


if __name__ == "__main__":
    print(asyncio.run(record(release())), "histories written")
