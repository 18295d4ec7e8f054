"""A life on SQLite recorded act by act, and many ends of it: what was acknowledged before each must be there."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from perdure.clock import Computer
from perdure.engine import Engine
from perdure.kernel.commit import StartVerdict, Verdict
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.kernel.soundness import unsound
from perdure.store.base import Search
from perdure.store.sqlite import connection
from perdure.store.sqlite.store import SqliteStore
from perdure.store.url import store_for
from perdure.testing.faults import FaultyStore
from tests.cut import trade
from tests.powercut.cut import Fate, images, written
from tests.powercut.recorder import Act, Recorder

TRADES = 12
FEW_PAGES = 30
"""A checkpoint comes after so many pages, so that checkpoints are cut too; by default after 4,000."""
TO_THE_END = 100
"""After each so many cuts an engine goes on with what is left, to the end."""
NAME = "shop.db"


class Told(NamedTuple):
    """Somebody was told that this process is stored, at least so far; or, with a result, that it has ended."""

    id: bytes
    token: int = 0
    version: int = 0
    inbox: int = 0
    result: int | None = None


class TellingStore(FaultyStore):
    """Puts between the acts of the disk what was answered, at the moment at which it is answered."""

    def __init__(self, url: str, machine: Computer, acts: list[Any]) -> None:
        super().__init__(store_for(url, machine))
        self._acts = acts

    async def _call(self, name: str, door: Any, argument: Any, *args: Any, **kwargs: Any) -> Any:
        answer = await super()._call(name, door, argument, *args, **kwargs)
        if name == "start":
            self._acts += [Told(one.id) for one in answer if one.verdict is StartVerdict.CREATED]
        elif name == "commit":
            for commit, said in zip(argument, answer, strict=True):
                if said.verdict is Verdict.APPLIED:
                    self._acts.append(Told(commit.after.id, commit.after.token, commit.after.version))
        elif name == "send":
            self._acts += [Told(one.process, inbox=one.number or 0) for one in answer]
        return answer


@dataclass
class Tally:
    """What was cut, and what was found."""

    cuts: Counter[Fate] = field(default_factory=Counter)
    lives: int = 0
    acts: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    finished: int = 0

    def __str__(self) -> str:
        fates = ", ".join(f"{n:,} {fate}" for fate, n in self.cuts.items())
        acts = ", ".join(f"{n:,} {deed}s" for deed, n in self.acts.items())
        return (
            f"{self.cuts.total():,} power cuts in {self.lives} lives ({acts} recorded), what was not synced: {fates}\n"
            f"  {self.acknowledged:,} acknowledgements looked for, {len(self.lost)} lost; files sound, laws held;\n"
            f"  after {self.finished} of the cuts an engine went on to the end of all processes"
        )


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder in memory if there is one: what the disk would do is played here, so it need not do it."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="perdure-powercut-", dir=memory) as folder:
        yield Path(folder)


async def session(
    wanted: int, folder: Path, seed: int, told: Callable[[str], None] = lambda text: None, *, tries: int = 100
) -> Tally:
    """Live and cut until there were ``wanted`` cuts; half of the lives go on from the end of another one."""
    chance, tally = random.Random(seed), Tally()
    base: dict[str, bytes] = {}
    known: list[Told] = []
    while tally.cuts.total() < wanted:
        tally.lives += 1
        acts = await life(folder / f"life{tally.lives}", base, tally.lives)
        tally.acts.update(str(act.deed) for act in acts if isinstance(act, Act))
        most = min(tries, wanted - tally.cuts.total())
        ends = sorted(chance.sample(range(1, len(acts) + 1), min(most, len(acts))))
        for place, end in enumerate(ends):
            fate = list(Fate)[(place + tally.lives) % len(Fate)]
            files = images(base, [act for act in acts[:end] if isinstance(act, Act)], fate, chance)
            promises = known + [act for act in acts[:end] if isinstance(act, Told)]
            await end_of(files, promises, folder / "cut", tally, to_the_end=tally.cuts.total() % TO_THE_END == 0)
            tally.cuts[fate] += 1
        told(f"{tally.cuts.total():,} of {wanted:,} cuts")
        base, known = (files, promises) if tally.lives % 2 else ({}, [])
        shutil.rmtree(folder / f"life{tally.lives}")
    return tally


async def life(folder: Path, base: Mapping[str, bytes], number: int) -> list[Any]:
    """What SQLite did while an engine made a few trades, with what was answered between."""
    folder.mkdir()
    written(folder, base)
    recorder = Recorder(folder)
    pages, connection.CHECKPOINT_PAGES = connection.CHECKPOINT_PAGES, FEW_PAGES
    try:
        with recorder.recording():
            machine = Computer()
            store = TellingStore(f"sqlite:///{folder}/{NAME}", machine, recorder.acts)
            async with Engine(store.url, store=store, machine=machine, work=True, workflows=trade.HOSTED) as engine:
                await asyncio.gather(*(_trade(engine, number * 1000 + n, recorder.acts) for n in range(TRADES)))
    finally:
        connection.CHECKPOINT_PAGES = pages
    return recorder.acts


async def _trade(engine: Engine, n: int, acts: list[Any]) -> None:
    handle = await engine.start(trade.trade.options(key=f"trade/{n}"), n)
    await handle.signal("paid", n, key="once")
    result = await handle.result()
    acts.append(Told((await engine.row(handle.id)).id, result=result))


async def end_of(
    files: Mapping[str, bytes], promises: Sequence[Told], folder: Path, tally: Tally, *, to_the_end: bool
) -> None:
    """Open what is left after a cut with the real store, and judge it."""
    folder.mkdir()
    try:
        written(folder, files)
        store = SqliteStore(f"sqlite:///{folder}/{NAME}")
        await store.open()
        try:
            await _judge(store, promises, tally)
        finally:
            await store.close()
        with sqlite3.connect(folder / NAME) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
        if to_the_end:
            await _finish(store.url)
            tally.finished += 1
    finally:
        shutil.rmtree(folder)


async def _judge(store: SqliteStore, promises: Sequence[Told], tally: Tally) -> None:
    """Every law holds on what is there, and what was told is there."""
    rows = {row.id: row for row in await store.search(Search(limit=1000, tasks=True))}
    now = await store.now()
    for row in rows.values():
        events = await store.history(row.id, row.run, limit=row.events or 1)
        assert unsound(row, events, await store.messages([(row.id, 0)]), now) == []
    for promise in promises:
        tally.acknowledged += 1
        if not _kept(promise, rows.get(promise.id)):
            tally.lost.append(f"{promise} and there is {rows.get(promise.id)}")


def _kept(promise: Told, row: Process | None) -> bool:
    if row is None:
        return False
    if promise.result is not None:
        return row.status is Status.COMPLETED and row.result == str(promise.result).encode()
    return row.token >= promise.token and row.version >= promise.version and row.inbox >= promise.inbox


async def _finish(url: str) -> None:
    """A fresh engine goes on: every trade ends as it must, those that had not heard their signal hear it now."""
    async with Engine(url, work=True, workflows=trade.HOSTED) as engine:
        for row in await engine.store.search(Search(kind="trade", limit=1000)):
            n = int(row.input.strip(b"[]"))
            if row.status is Status.RUNNING:
                await engine.process(id_text(row.id)).signal("paid", n, key="once")
            assert await engine.process(id_text(row.id)).result(timeout=60) == 5 * n
