"""A backup restored under running workers is seen: what it lacks is held and told, and done again by nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import ProcessNotFound, StoreError
from perdure.kernel.process import Status
from perdure.runtime.options import WorkerOptions
from perdure.store.failover import Lineage
from tests.restored.backups import (
    Backup,
    database_made_anew,
    dropped_and_restored,
    restored,
)
from tests.restored.passage import done, forget, gates, passage
from tests.runtime.conftest import LIMIT

pytestmark = [pytest.mark.kill, pytest.mark.timeout(120)]
QUICK = WorkerOptions(lease_seconds=3.0, beat_seconds=0.3)
WAYS: dict[str, tuple[Backup, ...]] = {
    "sqlite": (restored,),
    "postgres": (dropped_and_restored, database_made_anew),
}


@pytest.fixture(params=[(store, way) for store, ways in WAYS.items() for way in ways], ids=lambda one: one[1].__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Backup]:
    """The URL of an empty database, and a way to put its backup back."""
    store, way = request.param
    url = f"sqlite:///{tmp_path / 'shop.db'}" if store == "sqlite" else request.getfixturevalue("postgres_url")
    return url, way


@pytest.fixture
async def crew(place: tuple[str, Backup]) -> AsyncIterator[tuple[Engine, Engine]]:
    """Two workers on the database."""
    forget()
    engines = [Engine(place[0], work=True, workflows=[passage], options=QUICK) for _ in range(2)]
    for engine in engines:
        await engine.__aenter__()
    yield engines[0], engines[1]
    for engine in engines:
        await engine.close(0)


async def soon(true: Any) -> None:
    """Look again and again until it is so."""
    async with asyncio.timeout(LIMIT):
        while not await true():
            await asyncio.sleep(0.01)


async def row(engine: Engine, id: str) -> Any:
    try:
        return await engine.row(id)
    except StoreError:
        return None


async def waits(engine: Engine, id: str) -> bool:
    found = await row(engine, id)
    return found is not None and found.awaiting is not None


def beats(engine: Engine) -> float:
    """How often it has beaten; what has not happened yet has no figure."""
    return engine.metrics().get("beat_count", 0)


async def beaten(crew: tuple[Engine, Engine]) -> None:
    """Both workers have beaten since."""
    before = list(map(beats, crew))

    async def more() -> bool:
        return all(beats(engine) >= count + 2 for engine, count in zip(crew, before, strict=True))

    await soon(more)


async def paid_in_vain(
    crew: tuple[Engine, Engine], place: tuple[str, Backup], folder: Path
) -> tuple[Handle[Any], Handle[Any], Handle[Any]]:
    """A backup is taken while one process is on its way: it pays, another one is started and pays; it is put back."""
    here, _ = crew
    gates["calm"].set()
    calm, paying = [await here.start(passage.options(key=who), who) for who in ("calm", "paying")]
    await soon(lambda: waits(here, calm.id))
    await beaten(crew)
    url, backup = place
    restore = await asyncio.to_thread(backup, url, folder)
    gates["paying"].set()
    gates["lost"].set()
    lost = await here.start(passage.options(key="lost"), "lost")
    await soon(lambda: waits(here, paying.id))
    await soon(lambda: waits(here, lost.id))
    await beaten(crew)
    await asyncio.to_thread(restore)
    return calm, paying, lost


async def test_what_a_restored_backup_lacks_is_held_and_told_and_never_done_again_by_itself(
    place: tuple[str, Backup], crew: tuple[Engine, Engine], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = crew
    calm, paying, lost = await paid_in_vain(crew, place, tmp_path)

    async def held() -> bool:
        found = await row(there, paying.id)
        return found is not None and found.status is Status.HELD

    async def told() -> bool:
        return here.metrics()["processes_set_back"] == 2

    await soon(held)
    await soon(told)
    with pytest.raises(ProcessNotFound):
        await there.row(lost.id)
    assert "with loss of what was accepted" in caplog.text
    assert lost.id in caplog.text, "whoever reads the log learns which process is gone"
    # Whatever was not lost goes on, with no hand.
    await there.process(calm.id).signal("go")
    assert await there.process(calm.id).result(timeout=LIMIT) == "calm"
    assert done == {("paid", "calm"): 1, ("paid", "paying"): 1, ("paid", "lost"): 1}
    status = await there.process(paying.id).status()
    assert "set back" in str(status.error), "a person sees why it is held"
    await there.process(paying.id).resume(who="ann")
    await there.process(paying.id).signal("go")
    assert await there.process(paying.id).result(timeout=LIMIT) == "paying"
    assert done["paid", "paying"] == 2


async def test_without_the_comparison_it_would_be_done_again(
    place: tuple[str, Backup], crew: tuple[Engine, Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place[1] is database_made_anew:
        pytest.skip("once for each store is enough")

    async def blind(lineage: Lineage, connection: Any) -> None:
        return None

    monkeypatch.setattr(Lineage, "_compare", blind)
    await paid_in_vain(crew, place, tmp_path)

    async def paid_again() -> bool:
        return done["paid", "paying"] == 2

    await soon(paid_again)
