"""A backup is put back under running workers: all processes are examined at once, and the operator is told once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import Alert, Engine
from perdure.errors import StoreUnavailable
from perdure.kernel.audit import Audit
from perdure.kernel.names import id_text
from perdure.runtime.options import WorkerOptions
from perdure.runtime.sweeps import record_unsound
from perdure.store.base import Search
from perdure.testing.faults import FaultyStore
from tests.checks import plants, shop
from tests.restored.backups import dropped_and_restored, restored
from tests.runtime.conftest import LIMIT, Open, opened, until, until_row

pytestmark = [pytest.mark.kill, pytest.mark.timeout(120)]
__all__ = ["opened"]

QUICK = WorkerOptions(lease_seconds=3.0, beat_seconds=0.3)


def losing(engine: Engine, store: FaultyStore, line: str, lost: list[str]) -> Callable[[str, Any], Awaitable[None]]:
    """Loses the answer by which a worker hears that it was the one that noted the restored database."""

    async def after(name: str, argument: Any) -> None:
        if argument is Audit and not lost and engine.worker is not None:
            [row] = await store.store.records(Audit)
            if line != row.line == row.line_now and row.worker == id_text(engine.worker.incarnation.id):
                lost.append(name)
                raise StoreUnavailable("the answer was lost")

    return after


@pytest.mark.parametrize("answers", ["answers", "a lost answer"])
async def test_after_a_backup_is_put_back_everything_is_examined_at_once_and_the_operator_told_once(
    opened: Open, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: str
) -> None:
    monkeypatch.setattr(record_unsound, "SECONDS", 0.05)
    monkeypatch.setattr(record_unsound, "LONGEST_WAIT_SECONDS", 0.05)
    told: list[Alert] = []
    settings = {"work": True, "workflows": [shop], "options": QUICK, "on_alert": told.append}
    here, here_store = await opened(**settings)
    there, there_store = await opened(**settings)
    order = await here.start(shop.order, "A-1")
    await until_row(here, order.id, lambda row: row.awaiting and row.events)
    backup = restored if store_url.startswith("sqlite") else dropped_and_restored
    await plants.sow(store_url, order.id, "UPDATE process SET deaths = 7 WHERE id = :id")
    restore = await asyncio.to_thread(backup, store_url, tmp_path)
    before = [engine.metrics().get("beat_count", 0) for engine in (here, there)]
    await until(lambda: all(e.metrics()["beat_count"] > n + 1 for e, n in zip((here, there), before, strict=True)))
    assert not [alert for alert in told if alert.kind == "restored"]
    lost: list[str] = []
    if answers == "a lost answer":
        [audit] = await here.store.records(Audit)
        here_store.after = losing(here, here_store, audit.line, lost)
        there_store.after = losing(there, there_store, audit.line, lost)
    await asyncio.to_thread(restore)

    await until(lambda: [alert for alert in told if alert.kind == "restored"])
    [row] = await here.store.search(Search(kind="perdure/check"))
    assert (row.key or "").startswith("restored ")
    status = await here.checks.handle(id_text(row.id)).result(LIMIT)
    assert status.phase == "done" and status.found == {"one_transaction": 1}
    await asyncio.sleep(0)
    alerts = [alert for alert in told if alert.kind == "restored"]
    assert len(alerts) == 1 and id_text(row.id) in alerts[0].text
    assert lost == (["records"] if answers == "a lost answer" else [])
    assert len(await here.checks.runs()) == 1, "of two workers that have seen it one has started the run"


async def test_of_two_workers_that_have_seen_it_the_slower_one_tells_nobody(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_unsound, "SECONDS", 0.05)
    monkeypatch.setattr(record_unsound, "LONGEST_WAIT_SECONDS", 0.05)
    told: list[Alert] = []
    engine, store = await opened(work=True, workflows=[shop], options=QUICK, on_alert=told.append)
    quicker: list[Audit] = []

    async def before(name: str, argument: Any) -> None:
        if argument is Audit and not quicker and await store.store.search(Search(kind="perdure/check")):
            [row] = await store.store.records(Audit)
            noted = replace(row, version=row.version + 1, worker="another", line=row.line_now)
            quicker.extend([noted, replace(noted, version=noted.version + 1)])  # and it goes on to the next page
            for one in quicker:
                assert one in await store.store.records(Audit, [one])

    store.before = before
    await until_written(store, line="another state")
    await until(lambda: quicker)
    looks = len(store.calls)
    await until(lambda: [name for name, argument in store.calls[looks:] if argument is Audit])
    await engine.close()
    assert [alert for alert in told if alert.kind == "restored"] == []


async def until_written(store: FaultyStore, **said: Any) -> None:
    """Write this into the row of the audit, over whatever a worker has made of it."""
    written = False
    while not written:
        [row] = await store.store.records(Audit)
        change = replace(row, version=row.version + 1, **said)
        written = change in await store.store.records(Audit, [change])
