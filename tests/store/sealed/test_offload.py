"""The offload: blobs are there before they are referred to, and are removed when nobody does, never sooner."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from perdure.errors import DefinitionError, StoreUnavailable, UnreadablePayload
from perdure.kernel.commit import Start, StartVerdict, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process
from perdure.kernel.stored import Undecodable
from perdure.store.base import Search
from perdure.store.sealed.offload import Folder
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import finished, going_on
from tests.runtime.conftest import LIMIT
from tests.store.sealed.conftest import Tried

NOISE = bytes(range(256)) * 4
ID = bytes(range(16))


def files(folder: Folder) -> list[Path]:
    return sorted(one for one in folder.path.rglob("*") if one.is_file())


def ages(folder: Folder, seconds: float) -> None:
    """Make every blob older."""
    for file in files(folder):
        then = file.stat().st_mtime - seconds
        os.utime(file, (then, then))


class Away:
    """An offload that cannot be reached, or has not the time, as long as a test wants."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.above, self.grace = folder.above, folder.grace
        self.away = False
        self.asked = 0

    def _visit(self) -> None:
        self.asked += 1
        if self.away:
            raise OSError("the network is down")

    async def put(self, process: bytes, name: str, blob: bytes) -> None:
        self._visit()
        await self.folder.put(process, name, blob)

    async def get(self, process: bytes, name: str) -> bytes:
        self._visit()
        return await self.folder.get(process, name)

    async def old(self, after: bytes, limit: int) -> list[tuple[bytes, list[str]]]:
        return await self.folder.old(after, limit)

    async def delete(self, process: bytes, names: Sequence[str]) -> None:
        await self.folder.delete(process, names)


# -- the folder --------------------------------------------------------------------------------------------------------


async def test_a_blob_comes_back_as_it_was_put_and_an_absent_one_is_told_from_an_absent_folder(folder: Folder) -> None:
    with pytest.raises(OSError, match="mounted"):
        await folder.get(ID, "aa")
    await folder.put(ID, "aa", NOISE)
    await folder.put(ID, "aa", NOISE)
    assert await folder.get(ID, "aa") == NOISE
    assert len(files(folder)) == 1, "nothing is left aside"
    with pytest.raises(LookupError):
        await folder.get(ID, "bb")


async def test_what_was_half_written_by_somebody_who_died_is_written_anew(folder: Folder) -> None:
    await folder.put(ID, "aa", NOISE)
    files(folder)[0].write_bytes(NOISE[:10])
    await folder.put(ID, "aa", NOISE)
    assert await folder.get(ID, "aa") == NOISE


async def test_a_blob_put_again_while_it_is_about_to_be_removed_stays(tmp_path: Path) -> None:
    folder = Folder(tmp_path, grace=3600)
    await folder.put(ID, "aa", NOISE)
    ages(folder, 4000)
    assert await folder.old(b"", 10) == [(ID, ["aa"])]
    await folder.put(ID, "aa", NOISE)
    await folder.delete(ID, ["aa"])
    assert await folder.get(ID, "aa") == NOISE
    ages(folder, 4000)
    await folder.delete(ID, ["aa"])
    assert list(folder.path.iterdir()) == [], "nor is an empty folder left"


async def test_puts_and_deletes_at_once_leave_every_blob_that_was_put_last(folder: Folder) -> None:
    async def put_and_look(name: str) -> None:
        for _ in range(20):
            await folder.put(ID, name, NOISE)

    await asyncio.gather(*(put_and_look(f"{n:02}") for n in range(4)), *(folder.delete(ID, ["00"]) for _ in range(30)))
    await asyncio.gather(*(folder.put(ID, f"{n:02}", NOISE) for n in range(4)))
    assert len(files(folder)) == 4


async def test_a_folder_removed_while_it_is_made_is_made_again(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    await folder.put(ID, "aa", NOISE)
    look = Path.is_dir

    def removed_meanwhile(self: Path) -> bool:
        if self.name == ID.hex():  # ``mkdir`` found it there, and looks whether it is a folder
            monkeypatch.setattr(Path, "is_dir", look)
            shutil.rmtree(self)
        return look(self)

    monkeypatch.setattr(Path, "is_dir", removed_meanwhile)
    await folder.put(ID, "bb", NOISE)
    assert Path.is_dir is look
    assert await folder.get(ID, "bb") == NOISE


async def test_processes_are_looked_at_in_order_a_few_at_a_time(folder: Folder) -> None:
    ids = [bytes([n]) * 16 for n in (1, 2, 3)]
    for id in ids:
        await folder.put(id, "aa", NOISE)
    first = await folder.old(b"", 2)
    assert [id for id, _ in first] == ids[:2]
    assert [id for id, _ in await folder.old(first[-1][0], 2)] == ids[2:]


def test_a_grace_too_short_for_a_commit_that_waits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="Give at least"):
        Folder(tmp_path, grace=60)


# -- blobs of processes ------------------------------------------------------------------------------------------------


async def large(trial: Trial) -> Process:
    """A process with a large payload wherever there can be one."""
    row = await trial.owned(await trial.worker(), input=NOISE)
    await trial.send(row.id, payload=NOISE)
    event = Event(1, 1, EventType.STEP_COMPLETED, row.created_at, "1", "charge", NOISE)
    return await trial.done(going_on(row, events=(event,), state=NOISE, consumed=((1, 1),), seen=1))


async def test_only_what_nobody_refers_to_is_removed_and_only_when_it_is_old(tried: Tried, folder: Folder) -> None:
    async with tried(offload=folder) as trial:
        row = await large(trial)
        row = await trial.done(going_on(row, state=NOISE[1:]))
        await folder.put(trial.ids.new_id(), "ab", NOISE)
        assert len(files(folder)) == 6
        calm = Folder(folder.path, above=folder.above)
        async with tried(offload=calm) as careful:
            await careful.store.prune(10**15, 0, 100)
        assert len(files(folder)) == 6
        await trial.store.prune(10**15, 0, 100)
        assert len(files(folder)) == 4, "the former state is gone, and what belongs to no process"
        whole = await trial.whole(row.id)
        assert (whole.process.input, whole.process.state) == (NOISE, NOISE[1:])
        assert (whole.events[0].payload, whole.messages[0].payload) == (NOISE, NOISE)


async def test_a_pruned_process_takes_its_blobs_with_it(tried: Tried, folder: Folder) -> None:
    async with tried(offload=folder) as trial:
        row = await large(trial)
        await trial.done(finished(row))
        await trial.time.advance(1)
        assert (await trial.store.prune(0, 0, 100)).processes == 1
        await trial.store.prune(0, 0, 100)
        assert files(folder) == []


class TimedOut(Exception):
    """What the client of a bucket raises: no OSError."""


@pytest.mark.parametrize("error", [OSError("the network is down"), TimedOut("no answer"), StoreUnavailable("no row")])
async def test_whatever_an_offload_raises_while_blobs_are_removed_the_database_is_pruned_all_the_same(
    tried: Tried, folder: Folder, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Away):
        """An offload whose lists do not come."""

        async def old(self, after: bytes, limit: int) -> list[tuple[bytes, list[str]]]:
            raise error

    async with tried(offload=Failing(folder)) as trial:
        row = await trial.owned(await trial.worker(), input=NOISE)
        await trial.done(finished(row))
        await trial.time.advance(1)
        assert (await trial.store.prune(0, 0, 10)).processes == 1
    assert f"cannot be removed now: {type(error).__name__}" in caplog.text


async def test_what_died_between_blob_and_commit_left_one_blob_too_many_and_never_one_too_few(
    tried: Tried, folder: Folder
) -> None:
    async with tried(offload=folder) as trial:
        row = await trial.owned(await trial.worker())
        stale = going_on(replace(row, token=row.token - 1), state=NOISE)
        assert (await trial.commit(stale)).verdict is Verdict.REFUSED
        assert len(files(folder)) == 1
        await trial.store.prune(10**15, 0, 100)
        assert files(folder) == []
        assert (await trial.done(going_on(row, state=NOISE))).state == NOISE


async def test_an_offload_that_is_away_holds_up_only_those_who_need_it(tried: Tried, folder: Folder) -> None:
    away = Away(folder)
    async with tried(offload=away) as trial:
        worker = await trial.worker()
        small, big = await trial.owned(worker), await trial.owned(worker)
        away.away = True
        commits = [going_on(big, state=NOISE), going_on(small, state=b"1")]
        assert [one.verdict for one in await trial.store.commit(commits)] == [Verdict.BUSY, Verdict.APPLIED]
        start = Start(trial.process(input=NOISE))
        assert (await trial.store.start([start]))[0].verdict is StartVerdict.BUSY
        away.away = False
        while (await trial.commit(commits[0])).verdict is not Verdict.APPLIED:
            await asyncio.sleep(0)
        while (await trial.store.start([start]))[0].verdict is not StartVerdict.CREATED:
            await asyncio.sleep(0)
        assert (await trial.row(big.id)).state == (await trial.row(start.process.id)).input == NOISE


async def test_a_claim_says_whether_a_blob_is_gone_or_only_out_of_reach(tried: Tried, folder: Folder) -> None:
    away = Away(folder)
    async with tried(offload=away) as trial:
        row = await trial.started(input=NOISE)
        away.away = True
        [taken] = (await trial.claim(await trial.worker(), only=row.id)).claimed
        assert isinstance(taken.trouble, StoreUnavailable)
        away.away = False
        for file in files(folder):
            file.write_bytes(NOISE)
        changed = (await trial.row(row.id)).input
        assert isinstance(changed, Undecodable) and "was changed" in str(changed.why)
        for file in files(folder):
            file.unlink()
        gone = (await trial.row(row.id)).input
        assert (
            isinstance(gone, Undecodable) and isinstance(gone.why, UnreadablePayload) and "not there" in str(gone.why)
        )


async def test_a_list_fetches_nothing_and_a_look_at_one_process_does(tried: Tried, folder: Folder) -> None:
    away = Away(folder)
    async with tried(offload=away) as trial:
        row = await trial.started(input=NOISE, key="k")
        before = away.asked
        [listed] = await trial.store.search(Search(kind=row.kind))
        assert isinstance(listed.input, Undecodable) and "not fetched for lists" in str(listed.input.why)
        assert away.asked == before
        [found] = await trial.store.search(Search(kind=row.kind, key="k"))
        assert found.input == NOISE


async def test_what_was_put_a_moment_ago_is_not_put_again(tried: Tried, folder: Folder) -> None:
    away = Away(folder)
    away.grace = 3600.0
    async with tried(offload=away) as trial:
        row = await trial.owned(await trial.worker())
        commit = going_on(row, state=NOISE)
        for _ in range(3):
            assert (await trial.commit(commit)).verdict is Verdict.APPLIED
        assert away.asked == 1
        blobs = getattr(trial.store, "blobs")  # noqa: B009
        blobs._fresh = dict.fromkeys(blobs._fresh, -1e9)
        assert (await trial.commit(commit)).verdict is Verdict.APPLIED
        assert away.asked == 2, "sent again much later, it is put again"


async def test_an_engine_without_the_offload_is_told_that_it_lacks_one(tried: Tried, folder: Folder) -> None:
    async with tried(offload=folder) as trial, tried() as without:
        row = await trial.started(input=NOISE)
        [taken] = (await without.claim(await without.worker())).claimed
        assert taken.process.id == row.id and "no offload is configured here" in str(taken.trouble)


async def test_a_folder_that_hangs_leaves_the_threads_of_the_event_loop_to_others(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "blobs")
    await folder.put(ID, "name", b"")
    [file] = files(folder)
    file.unlink()
    os.mkfifo(file)  # who reads it waits for a writer
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    read = asyncio.create_task(folder.get(ID, "name"))
    try:
        async with asyncio.timeout(LIMIT):
            while (writer := await asyncio.to_thread(opened, file)) is None:
                pass
        daemons = {thread.name: thread.daemon for thread in threading.enumerate()}
        os.write(writer, NOISE)
        os.close(writer)
        assert await read == NOISE
        assert daemons["perdure folder 1"], "nor does a program wait for it at its end"
    finally:
        os.close(os.open(file, os.O_RDWR))  # whatever the test has found, the thread ends


def opened(file: Path) -> int | None:
    """The file for writing; None as long as nobody reads it."""
    try:
        return os.open(file, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None
