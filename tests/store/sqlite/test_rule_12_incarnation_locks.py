"""Rule 12 on SQLite: one lock file per incarnation, freed by every kind of death, held by nobody else."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from perdure.kernel.worker import WorkerRow
from perdure.store.sqlite import upkeep
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.incarnation_lock import IncarnationLocks
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import SILENCE
from tests.runtime.conftest import LIMIT
from tests.store.sqlite.conftest import Spawn

ENLIST = """
import asyncio, os, subprocess, sys
from perdure.kernel.worker import WorkerRow
from perdure.store.sqlite.store import SqliteStore
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    worker = await store.enlist(WorkerRow(bytes.fromhex(sys.argv[2]), "there"), 15_000_000)
    children = [subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)]
    forked = os.fork()
    if forked == 0:
        sys.stdin.read()
        os._exit(0)
    print(worker.locked, children[0].pid, forked, flush=True)
    sys.stdin.readline()
asyncio.run(main())
"""


def _files(file: Path) -> list[str]:
    folder = Path(f"{file}-workers")
    locks = (path.name for path in folder.iterdir() if path.name != "turnstile") if folder.is_dir() else ()
    return sorted(locks)


async def _free(store: SqliteStore) -> dict[str, bool]:
    return {worker.name: worker.lock_free for worker in await store.workers()}


@pytest.mark.skipif(sys.platform == "win32", reason="no flock here")
async def test_rule_12_a_killed_workers_lock_is_free_though_its_children_live(
    trial: Trial, store: SqliteStore, url: str, spawn: Spawn
) -> None:
    other = spawn(ENLIST, url, trial.ids.new_id().hex())
    assert other.stdout is not None
    locked, child, forked = other.stdout.readline().split()
    children = [int(child), int(forked)]
    try:
        assert locked == "True"
        assert await _free(store) == {"there": False}
        other.send_signal(signal.SIGKILL)
        other.wait()
        for living in children:
            os.kill(living, 0)
        async with asyncio.timeout(LIMIT):  # on a busy machine the forked one has not begun yet, and lets go of it then
            while await _free(store) != {"there": True}:
                pass
        for living in children:
            os.kill(living, 0)
    finally:
        for living in children:
            os.kill(living, signal.SIGKILL)


async def test_rule_12_looking_holds_nothing_and_disturbs_no_other_looker(trial: Trial, store: SqliteStore) -> None:
    other = SqliteStore(store.url)
    await other.open()
    await other.enlist(WorkerRow(trial.ids.new_id(), "there"), SILENCE)
    for _ in range(3):
        assert await _free(store) == await _free(other) == {"there": False}
    await other.close()
    assert await _free(store) == {"there": True}
    assert await _free(store) == {"there": True}


async def test_rule_12_a_file_that_is_gone_is_no_evidence(trial: Trial, store: SqliteStore, file: Path) -> None:
    other = SqliteStore(store.url)
    await other.open()
    worker = await other.enlist(WorkerRow(trial.ids.new_id(), "there"), SILENCE)
    await other.close()
    Path(f"{file}-workers", f"{worker.id.hex()}.lock").unlink()
    assert await _free(store) == {"there": False}


async def test_rule_13_a_death_that_another_has_seen_while_we_look_is_no_life(
    trial: Trial, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our reading the row and our look at its lock, somebody ends the dead worker, and its file goes."""
    other = SqliteStore(store.url)
    await other.open()
    worker = await other.enlist(WorkerRow(trial.ids.new_id(), "there"), SILENCE)
    await other.close()
    loop, read = asyncio.get_running_loop(), upkeep.workers

    def ended_meanwhile(connection: Connection, ended: bool, ids: None) -> list[WorkerRow]:
        rows = read(connection, ended, ids)
        asyncio.run_coroutine_threadsafe(store.retire(worker.id, None, True), loop).result(10)
        return rows

    monkeypatch.setattr(upkeep, "workers", ended_meanwhile)
    [seen] = await store.workers(ended=True)
    assert seen.died
    assert await store.workers() == []


async def test_a_retired_incarnation_leaves_no_file(trial: Trial, store: SqliteStore, file: Path) -> None:
    mine = await trial.worker()
    assert _files(file) == [f"{mine.hex()}.lock"]
    await store.retire(mine, None, False)
    assert _files(file) == []


async def test_files_that_belong_to_nobody_living_are_swept_at_the_next_opening(
    trial: Trial, store: SqliteStore, url: str, file: Path
) -> None:
    living = await trial.worker()
    lost, enlisting = trial.ids.new_id(), trial.ids.new_id()
    gone = IncarnationLocks(Path(f"{file}-workers"))
    gone.take(lost)
    gone.close()
    busy = IncarnationLocks(Path(f"{file}-workers"))
    busy.take(enlisting)
    Path(f"{file}-workers", "notes.lock").touch()
    assert len(_files(file)) == 4
    again = SqliteStore(url)
    await again.open()
    await again.close()
    assert _files(file) == sorted([f"{living.hex()}.lock", f"{enlisting.hex()}.lock", "notes.lock"])
    busy.close()


async def test_a_database_in_memory_has_no_locks_and_says_so(trial: Trial) -> None:
    store = SqliteStore("sqlite://:memory:")
    await store.open()
    worker = await store.enlist(WorkerRow(trial.ids.new_id(), "here"), SILENCE)
    assert (worker.locked, await _free(store)) == (False, {"here": False})
    await store.close()


async def test_an_incarnation_enlisted_elsewhere_too_does_not_count_its_lock(
    trial: Trial, store: SqliteStore, file: Path
) -> None:
    worker = WorkerRow(trial.ids.new_id(), "here")
    elsewhere = IncarnationLocks(Path(f"{file}-workers"))
    assert elsewhere.take(worker.id)
    assert not (await store.enlist(worker, SILENCE)).locked
    elsewhere.close()
