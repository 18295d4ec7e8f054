"""The library's own workflows: a worker loads one when it has a process of it in hand, or not at all."""

from __future__ import annotations

import errno
from datetime import UTC, datetime, timedelta
from importlib import import_module
from types import ModuleType

import pytest

from perdure import Engine, Schedule, Status, limits
from perdure.authoring import library
from perdure.authoring.registry import Registry
from tests.runtime.conftest import Open, until, until_row
from tests.schedules.reports import done, report

LATE = Schedule(at=datetime.now(UTC) - timedelta(hours=1))
"""It has come before any worker is there."""
KINDS = {"perdure/schedule", "perdure/operation", "perdure/check", "perdure/webhook"}


class Importer:
    """Imports for the library, and raises its error instead while it has one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        self.asked: list[str] = []
        monkeypatch.setattr(library, "import_module", self)

    def __call__(self, name: str) -> ModuleType:
        self.asked.append(name)
        if self.error is not None:
            raise self.error
        return import_module(name)


@pytest.fixture
def importer(monkeypatch: pytest.MonkeyPatch) -> Importer:
    done.clear()
    return Importer(monkeypatch)


async def scheduled(engine: Engine) -> str:
    """The id of the process behind a schedule that is due."""
    handle = await engine.schedules.put("once", LATE, report, "x")
    return (await handle.status()).process


def test_a_worker_hosts_each_kind_under_its_name_before_and_after_it_is_loaded() -> None:
    registry = library.host_library(Registry())
    hosted = set(registry.hosted)
    assert hosted == {(kind, "") for kind in KINDS}
    before = registry.offer(1)
    for kind, version in hosted:
        assert registry.code_of(kind, version).name == kind
        assert registry.code_of(kind, version) is registry.code_of(kind, version)
    assert set(registry.hosted) == hosted and set(registry.versions) == hosted
    assert registry.offer(1) == before, "workers that have loaded one are no newer than those that have not"
    assert len(set(before.codes.values())) == len(KINDS)


def test_a_kind_that_is_not_hosted_is_not_loaded() -> None:
    with pytest.raises(KeyError):
        library.host_library(Registry()).code_of("perdure/other", "")
    with pytest.raises(KeyError):
        Registry().code_of("perdure/schedule", "")


async def test_a_worker_loads_what_it_has_claimed(opened: Open, importer: Importer) -> None:
    client, _ = await opened()
    worker, _ = await opened(work=True, workflows=[report])
    assert importer.asked == [] and not KINDS & worker.registry.kinds.keys()
    await scheduled(client)
    await until(lambda: done)
    assert importer.asked == ["perdure.authoring.schedule.machine"]
    assert KINDS & worker.registry.kinds.keys() == {"perdure/schedule"}


async def test_a_process_is_handed_back_while_its_module_cannot_be_read(
    opened: Open, importer: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SHORTAGE_WAIT_SECONDS", 0.01)
    client, _ = await opened()
    id = await scheduled(client)
    importer.error = OSError(errno.EMFILE, "Too many open files")
    worker, _ = await opened(work=True, workflows=[report])
    await until(lambda: worker.metrics()["processes_put_off"] >= 2)
    row = await worker.row(id)
    assert row.status is not Status.BROKEN and not done
    importer.error = None
    await until(lambda: done)


async def test_a_process_whose_module_is_missing_waits_for_a_person(opened: Open, importer: Importer) -> None:
    client, _ = await opened()
    id = await scheduled(client)
    importer.error = ModuleNotFoundError("No module named 'cronsim'")
    worker, _ = await opened(work=True, workflows=[report])
    row = await until_row(worker, id, lambda row: row.status is Status.BROKEN)
    assert b"No module named 'cronsim'" in (row.error or b"") and not done
    importer.error = None
    await client.process(id).retry()
    await until(lambda: done)
