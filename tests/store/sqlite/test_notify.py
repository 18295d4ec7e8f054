"""Bells: stores on one file wake each other by datagrams; whatever happens to them, a look at the file finds it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure import limits
from perdure.clock import Computer
from perdure.kernel.commit import Start
from perdure.store.notifications import Notification
from perdure.store.sqlite.notify import FULL, Hint, Notifier
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.clock import MovableMachine
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import LEASE
from tests.store.sqlite.conftest import Spawn

PATIENCE = 5.0

HANG_A_BELL = """
import asyncio, sys
from perdure.store.sqlite.store import SqliteStore
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    store.watch(lambda news: None)
    print(store._notifier._name, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


class Neighbour:
    """Another store on the file, which hears."""

    def __init__(self, url: str, machine: MovableMachine) -> None:
        self.store = SqliteStore(url, machine=machine)
        self.heard: asyncio.Queue[Notification] = asyncio.Queue()

    async def listen(self) -> None:
        """Begin, and look at the file no more by itself."""
        await self.store.open()
        self.store.watch(self.heard.put_nowait)
        timer = self.store._watch._timer
        assert timer is not None
        timer.cancel()

    async def next(self) -> Notification:
        """What is heard next."""
        async with asyncio.timeout(PATIENCE):
            return await self.heard.get()

    def look(self) -> None:
        """Look at the file, once."""
        self.store._watch._look()
        timer = self.store._watch._timer
        assert timer is not None
        timer.cancel()


@pytest.fixture
async def neighbour(url: str, machine: MovableMachine, store: SqliteStore) -> AsyncIterator[Neighbour]:
    """A neighbour that hears nothing but bells."""
    made = Neighbour(url, machine)
    await made.listen()
    yield made
    await made.store.close()


def bells(file: Path) -> set[str]:
    """The bells that hang."""
    return {path.name for path in Path(f"{file}-workers").glob("*.bell")}


async def test_a_commit_is_heard_without_a_look_at_the_file(trial: Trial, neighbour: Neighbour) -> None:
    row = await trial.started()
    assert await neighbour.next() == Notification(kinds=(row.kind,), due=(row.id,))


async def test_what_a_notice_has_told_is_not_told_again_by_the_look(trial: Trial, neighbour: Neighbour) -> None:
    await trial.started()
    await neighbour.next()
    neighbour.look()
    assert neighbour.heard.empty()


async def test_a_lost_notice_costs_one_look(
    trial: Trial, neighbour: Neighbour, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store._notifier, "_others", lambda: ())
    await trial.started()
    neighbour.look()
    assert (await neighbour.next()).some_due
    neighbour.look()
    assert neighbour.heard.empty()


async def test_nobody_is_notified_of_what_nobody_waits_for(trial: Trial, neighbour: Neighbour) -> None:
    worker = await trial.worker()
    await trial.store.start([Start(trial.process(owner=worker, token=1), (), LEASE)])
    row = await trial.started()
    assert await neighbour.next() == Notification(kinds=(row.kind,), due=(row.id,))
    assert neighbour.heard.empty()


async def test_whoever_cannot_be_notified_any_more_looks_at_once(neighbour: Neighbour, store: SqliteStore) -> None:
    for _ in range(FULL + 2):
        store._notifier.notify(Hint(Notification(some_done=True), 0, 1))
    looks = neighbour.store._watch
    heard = [await neighbour.next() for _ in range(FULL + 1)]
    assert all(notification.some_done for notification in heard)
    assert looks._foreign == (0, 0)  # the file says that nobody has counted any hint: it was looked at
    assert looks._timer is not None
    looks._timer.cancel()


async def test_the_socket_of_a_killed_worker_is_removed_by_the_next_who_notifies_it(
    trial: Trial, file: Path, url: str, spawn: Spawn
) -> None:
    other = spawn(HANG_A_BELL, url)
    assert other.stdout is not None
    name = (await asyncio.to_thread(other.stdout.readline)).strip()
    assert bells(file) == {name}
    await trial.started()
    assert bells(file) == {name}
    other.send_signal(signal.SIGKILL)
    other.wait()
    await trial.started()
    assert bells(file) == set()


async def test_the_socket_of_a_store_goes_with_it(trial: Trial, file: Path, neighbour: Neighbour) -> None:
    assert len(bells(file)) == 1
    await neighbour.store.close()
    assert bells(file) == set()


async def test_a_path_too_long_for_a_socket_is_gone_around(tmp_path: Path, machine: MovableMachine) -> None:
    folder = tmp_path / ("a" * 100) / ("b" * 100)
    folder.mkdir(parents=True)
    store = SqliteStore(f"sqlite:///{folder}/shop.db", machine=machine)
    await store.open()
    neighbour = Neighbour(store.url, machine)
    await neighbour.listen()
    if not neighbour.store._watch._listening:
        pytest.skip("this system has no way around")
    store._notifier.notify(Hint(Notification(some_due=True), 1, 0))
    assert (await neighbour.next()).some_due
    await neighbour.store.close()
    await store.close()


async def test_where_no_socket_can_be_made_the_file_is_looked_at_as_often_as_before(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()

    def refuse(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(loop, "add_reader", refuse)
    stop = store.watch(lambda notification: None)
    timer = store._watch._timer
    assert timer is not None
    assert timer.when() - loop.time() <= limits.SQLITE_POLL_BUSY_SECONDS
    stop()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EAFNOSUPPORT], ids=errno.errorcode.get)
async def test_where_no_socket_can_be_made_a_commit_is_answered_and_found_by_a_look(
    trial: Trial, neighbour: Neighbour, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    class Refused(socket.socket):
        def __init__(self, *_: object) -> None:
            raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", Refused)
        await trial.started()
    neighbour.look()
    assert (await neighbour.next()).some_due
    row = await trial.started()
    assert await neighbour.next() == Notification(kinds=(row.kind,), due=(row.id,))


async def test_a_socket_without_an_owner_that_cannot_be_removed_fails_no_commit_and_hides_no_other_socket(
    trial: Trial, neighbour: Neighbour, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(f"{file}-workers")  # the whole path may be too long for a socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind("0.bell")

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refused)
        row = await trial.started()
        assert await neighbour.next() == Notification(kinds=(row.kind,), due=(row.id,))
    assert len(bells(file)) == 2


async def test_what_is_committed_is_answered_though_announcing_it_fails_and_listeners_here_are_told(
    trial: Trial, store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(hint: Hint) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(store._notifier, "notify", failing)
    heard: list[Notification] = []
    stop = store.watch(heard.append)
    row = await trial.started()
    stop()
    assert [one.due for one in heard] == [(row.id,)]
    assert "a defect" in caplog.text


def test_a_simulated_machine_has_no_sockets(tmp_path: Path) -> None:
    class Simulated(Computer):
        simulated = True

    notifier = Notifier(tmp_path, Simulated())
    assert not notifier.listen(lambda notices, missed: None)
    notifier.notify(Hint(Notification()))
    notifier.close()


async def test_a_child_os_process_inherits_no_socket(neighbour: Neighbour, store: SqliteStore) -> None:
    store._notifier.notify(Hint(Notification()))
    ends = [neighbour.store._notifier._receiver, store._notifier._sender]
    assert [end is not None and os.get_inheritable(end.fileno()) for end in ends] == [False, False]
    child = os.fork()
    if child == 0:
        os._exit(0 if neighbour.store._notifier._receiver is None and store._notifier._sender is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store._notifier.notify(Hint(Notification(some_due=True), 1, 0))
    assert (await neighbour.next()).some_due


async def test_what_is_not_understood_is_looked_up(trial: Trial, neighbour: Neighbour, file: Path) -> None:
    [name] = bells(file)
    raw = sqlite3.connect(file)
    raw.execute("UPDATE clock SET due_hints = due_hints + 1")
    raw.commit()
    raw.close()
    notifier = Notifier(Path(f"{file}-workers"), Computer())
    assert notifier._place is not None
    notifier.notify(Hint(Notification()))
    assert notifier._sender is not None
    notifier._sender.sendto(b"?", notifier._place.of(name))
    notifier.close()
    assert (await neighbour.next()).some_due
