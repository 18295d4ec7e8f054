"""Several OS processes on one file: each row is done once; whoever is killed with the lock in hand stops nobody."""

from __future__ import annotations

import signal
import sqlite3
from pathlib import Path

from perdure.clock import Computer
from perdure.kernel.commit import Start
from perdure.kernel.process import Process, Status
from perdure.store.base import Search
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.conformance import Trial
from tests.store.sqlite.conftest import Spawn

WORK = """
import asyncio, sys
from msgspec.structs import replace
from perdure.clock import Computer
from perdure.kernel.commit import Commit, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.claim import Claim
from perdure.kernel.process import Process, Status
from perdure.kernel.worker import Beat, WorkerRow
from perdure.store.sqlite.store import SqliteStore
def ended(row):
    events = (Event(1, 1, EventType.STEP_COMPLETED, 1, "1", "charge"), Event(2, 0, EventType.COMPLETED, 1))
    after = replace(row, status=Status.COMPLETED, version=1, owner=None, due_at=None, events=2)
    return Commit(row.token, row.version, after, events)
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    me = Computer().new_id()
    await store.enlist(WorkerRow(me, "worker"), 15_000_000)
    done = 0
    while True:
        taken = (await store.claim(Claim(me, (("order", "1"),), 20, 15_000_000))).claimed
        if not taken:
            break
        answers = await store.commit([ended(one.process) for one in taken])
        assert {answer.verdict for answer in answers} == {Verdict.APPLIED}
        assert (await store.beat(Beat(me, (), 1, 15_000_000))).alive
        done += len(taken)
    print(done)
    await store.close()
asyncio.run(main())
"""

HOLD_THE_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("DELETE FROM process")
print("ready", flush=True)
sys.stdin.read()
"""


async def test_three_workers_on_one_file_end_each_process_once(url: str, spawn: Spawn) -> None:
    store = SqliteStore(url)
    await store.open()
    ids = Computer()
    await store.start([Start(Process(ids.new_id(), "order", None, b"[]", code="1")) for _ in range(900)])
    workers = [spawn(WORK, url) for _ in range(3)]
    done = [int(worker.communicate()[0]) for worker in workers]
    assert sum(done) == 900
    assert await store.count(Search()) == [("order", Status.COMPLETED, 900)]
    assert {row.token for row in await store.search(Search(limit=1000))} == {1}
    await store.close()


async def test_a_writer_killed_with_the_lock_in_hand_stops_nobody_and_leaves_nothing(
    trial: Trial, file: Path, spawn: Spawn
) -> None:
    row = await trial.started()
    holder = spawn(HOLD_THE_LOCK, str(file))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    second = await trial.started()
    assert await trial.stored() == [second, row]


async def test_what_was_answered_is_in_the_file_after_the_writer_was_killed(url: str, file: Path, spawn: Spawn) -> None:
    program = """
import asyncio, os, signal, sys
from perdure.clock import Computer
from perdure.kernel.commit import Start
from perdure.kernel.process import Process
from perdure.store.sqlite.store import SqliteStore
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    for _ in range(10):
        [answer] = await store.start([Start(Process(Computer().new_id(), "order", None, b"[]"))])
        print(answer.id.hex(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    out, _ = spawn(program, url).communicate()
    answered = {bytes.fromhex(line) for line in out.split()}
    connection = sqlite3.connect(file)
    kept = {id for (id,) in connection.execute("SELECT id FROM process")}
    connection.close()
    assert len(answered) == 10
    assert kept == answered
