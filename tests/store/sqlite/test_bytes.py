"""What a finished one-step process takes of the file, indexes included."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from perdure.kernel.commit import Commit, Start
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process, Status
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import LEASE

MOST_BYTES = 300
PROCESSES = 10_000


def _ended(row: Process) -> Commit:
    result = b'"r-000001"'
    events = (
        Event(1, 1, EventType.STEP_COMPLETED, row.created_at, "1", "charge", result, b"8 bytes!"),
        Event(2, 0, EventType.COMPLETED, row.created_at),
    )
    after = replace(row, status=Status.COMPLETED, version=1, owner=None, due_at=None, events=2, result=result)
    return Commit(row.token, 0, after, events)


async def test_a_finished_one_step_process_takes_at_most_300_bytes(
    trial: Trial, store: SqliteStore, file: Path
) -> None:
    worker = await trial.worker()
    now = await store.now()
    for _ in range(0, PROCESSES, 1000):
        rows = [
            trial.process(input=b'["A-17",1]', owner=worker, token=1, created_at=now, opened_at=now)
            for _ in range(1000)
        ]
        await store.start([Start(row, (), LEASE) for row in rows])
        await store.commit([_ended(row) for row in rows])
    await store.close()
    blank = SqliteStore(f"sqlite:///{file.with_name('blank.db')}")
    await blank.open()
    await blank.close()
    size = file.stat().st_size - file.with_name("blank.db").stat().st_size
    assert size / PROCESSES <= MOST_BYTES
