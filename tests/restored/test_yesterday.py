"""The incident of the guide, on both stores: a backup of yesterday is noticed, what it lacks is told, and repaired."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path

import pytest

from perdure import Alert, Search, Status
from perdure.client.explaining.diagnosis import Diagnosis
from perdure.errors import ProcessNotFound
from perdure.kernel.names import id_text
from perdure.runtime.options import WorkerOptions
from perdure.runtime.sweeps import record_unsound
from tests.docs.walkthrough import blocks
from tests.restored.backups import dropped_and_restored, restored
from tests.runtime.conftest import LIMIT, Open, opened, until, until_row
from tests.source import ROOT

pytestmark = [pytest.mark.kill, pytest.mark.timeout(120)]
__all__ = ["opened"]

QUICK = WorkerOptions(lease_seconds=20.0, beat_seconds=0.3)
PAGE = ROOT / "docs" / "guide" / "30-incidents.md"


async def test_a_database_restored_from_yesterday_is_noticed_and_what_is_missing_is_told_and_repaired(
    opened: Open, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(record_unsound, "SECONDS", 0.05)
    monkeypatch.setattr(record_unsound, "LONGEST_WAIT_SECONDS", 0.05)
    (tmp_path / "yesterday_desk.py").write_text(blocks(PAGE)[0].text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    desk = import_module("yesterday_desk")
    told: list[Alert] = []
    engine, _ = await opened(work=True, workflows=[desk], options=QUICK, on_alert=told.append)
    kept = await engine.start(desk.order.options(key="E-0"), "E-0")
    assert await kept.result(LIMIT) == "in euros"
    waiting = await engine.start(desk.approval.options(key="E-1"), "E-1")
    await until_row(engine, waiting.id, lambda row: row.awaiting)

    backup = restored if store_url.startswith("sqlite") else dropped_and_restored
    restore = await asyncio.to_thread(backup, store_url, tmp_path)
    await waiting.signal("approved")
    await waiting.result(LIMIT)
    lost = await engine.start(desk.order.options(key="E-2"), "E-2")
    assert await lost.result(LIMIT) == "in euros"
    beats = engine.metrics().get("beat_count", 0)
    await until(lambda: engine.metrics()["beat_count"] > beats + 1)
    await asyncio.to_thread(restore)

    await until(lambda: [alert for alert in told if alert.kind == "restored"])
    await until_row(engine, waiting.id, lambda row: row.status is Status.HELD)
    found = await engine.explain(waiting.id)
    assert found.cause is Diagnosis.SET_BACK and "it was set back, with the database, from version" in found.why
    with pytest.raises(ProcessNotFound):
        await engine.row(lost.id)
    assert lost.id in caplog.text, "whoever reads the log learns which process is gone"
    await until(lambda: "has lost it, although its start was answered; start it again" in caplog.text)
    [run] = await engine.store.search(Search(kind="perdure/check"))
    examined = await engine.checks.handle(id_text(run.id)).result(LIMIT)
    assert (examined.phase, examined.found) == ("done", {})

    await engine.process(waiting.id).resume(who="ann", why="its approval is sent again")
    await engine.process(waiting.id).signal("approved")
    await engine.process(waiting.id).result(LIMIT)
    again = await engine.start(desk.order.options(key="E-2"), "E-2")
    assert again.id != lost.id and await again.result(LIMIT) == "in euros"
    there = await engine.start(desk.order.options(key="E-0"), "E-0")
    assert there.id == kept.id, "what the backup has is left alone"
    assert await engine.count(Search(statuses=(Status.RUNNING, Status.HELD, Status.BROKEN, Status.FAILED))) == {}
