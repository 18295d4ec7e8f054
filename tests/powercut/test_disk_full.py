"""The disk is full, and has room again: a clear word meanwhile, nothing lost, and no hand needed afterwards."""

from __future__ import annotations

import asyncio
import os
import random
import string
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure import step, workflow
from perdure.engine import Engine
from perdure.kernel.retry import Retry
from perdure.testing.postgres import Server, unprivileged
from tests.kill.harness import laws_hold
from tests.powercut.recorder import Recorder, Unreachable
from tests.powercut.session import quick_folder

pytestmark = [pytest.mark.kill, pytest.mark.timeout(120)]
LIMIT = 60.0
MIB = 1024 * 1024
HOARDS = 60
CHAFF = "".join(random.Random(1).choices(string.ascii_letters, k=100_000))
"""Half of what a process keeps; the database cannot make it much smaller."""


@step(retry=Retry.NONE)
async def keep(n: int, chaff: str) -> str:
    """A large result."""
    return f"{n}{chaff}"


@workflow
async def hoard(n: int, chaff: str) -> int:
    """A large input, and a step with a large result."""
    return len(await keep(n, chaff)) - len(chaff)


class Small:
    """A disk of few megabytes in memory, the most of them taken by ballast; only root can have one."""

    def __init__(self, folder: Path, megabytes: int, ballast: int) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"
        folder.mkdir()
        options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(["mount", *options], check=False, capture_output=True).returncode:
            pytest.skip("only root may mount a small disk, and only where the system lets it")
        self._ballast.write_bytes(bytes(ballast * MIB))

    def relieve(self) -> None:
        """Make room."""
        self._ballast.unlink()

    def remove(self) -> None:
        """Take the disk away."""
        subprocess.run(["umount", "-l", str(self.folder)], check=False, capture_output=True)


async def filled_and_relieved(url: str, relieve: Callable[[], None], caplog: pytest.LogCaptureFixture) -> None:
    """More work than there is room for; then there is room."""
    async with Engine(url, work=True, workflows=[hoard]) as engine:
        started: list[str] = []

        async def one(n: int) -> None:
            handle = await engine.start(hoard.options(key=str(n)), n, CHAFF)
            started.append(handle.id)
            assert await handle.result() == len(str(n))

        running = [asyncio.create_task(one(n)) for n in range(HOARDS)]
        async with asyncio.timeout(LIMIT):
            while "make room" not in caplog.text:
                await asyncio.sleep(0.01)
        assert not all(task.done() for task in running), "there was room for everything"
        for id in started.copy():
            assert (await engine.row(id)).kind == "hoard", "what was accepted can be read"
        relieve()
        await asyncio.wait_for(asyncio.gather(*running), LIMIT)
        assert len(await laws_hold(engine)) == HOARDS


async def test_sqlite_goes_on_by_itself_once_a_full_disk_has_room(caplog: pytest.LogCaptureFixture) -> None:
    with quick_folder() as folder:
        recorder = Recorder(folder)
        try:
            with recorder.recording():
                recorder.room = 4 * MIB
                await filled_and_relieved(f"sqlite:///{folder}/shop.db", lambda: _relieve(recorder), caplog)
        except (Unreachable, OSError, AttributeError) as why:
            pytest.skip(str(why))


def _relieve(recorder: Recorder) -> None:
    recorder.room = None


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    """A small disk of its own."""
    disk = Small(tmp_path / "disk", megabytes=64, ballast=50)
    yield disk
    disk.remove()


async def test_sqlite_on_a_small_real_disk_does_the_same(small: Small, caplog: pytest.LogCaptureFixture) -> None:
    await filled_and_relieved(f"sqlite:///{small.folder}/shop.db", small.relieve, caplog)


@pytest.fixture
def tablespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Small]]:
    """A server whose databases can be put on a small disk."""
    with Server(("fsync=off",)) as server:
        disk = Small(server.home / "disk", megabytes=64, ballast=44)
        place = disk.folder / "space"
        place.mkdir(mode=0o700)
        user = unprivileged()
        for path in (disk.folder, place) if user else ():
            os.chown(path, user["user"], user["group"])
        server.execute("postgres", f"CREATE TABLESPACE small LOCATION '{place}'")
        yield server, disk
        server.stop()
        disk.remove()


async def test_postgres_goes_on_by_itself_once_a_full_tablespace_has_room(
    tablespace: tuple[Server, Small], caplog: pytest.LogCaptureFixture
) -> None:
    server, disk = tablespace
    server.execute("postgres", "CREATE DATABASE hoards TABLESPACE small")
    await filled_and_relieved(server.url("hoards"), disk.relieve, caplog)
