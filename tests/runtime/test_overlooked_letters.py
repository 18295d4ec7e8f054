"""A worker of the first release has let a process rest whose signals lie in its inbox: a newer one takes it."""

from __future__ import annotations

from msgspec.structs import replace

from perdure import receive, workflow
from perdure.clock import SECOND
from perdure.kernel.claim import Claim
from perdure.kernel.commit import Commit, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process
from perdure.kernel.worker import WorkerRow
from perdure.store.base import Store
from tests.runtime.conftest import LIMIT, Open

HOUR = 3600 * SECOND


@workflow(name="names")
async def names() -> list[str]:
    await receive("go")
    return [await receive("name", str) for _ in range(3)]


async def lived(store: Store, worker: bytes, process: bytes) -> Process:
    """A newer worker has heard the first two names and left them; then an old one heard the others, and took them."""
    claim = Claim(worker, (("names", ""),), 1, HOUR, only=process)
    [taken] = (await store.claim(claim)).claimed
    row = replace(taken.process, version=taken.process.version + 1, seen=2)
    row = await _written(store, Commit(taken.process.token, taken.process.version, row, consumed=((1, 0), (2, 0))))
    now = await store.now()
    events = (
        Event(1, 1, EventType.MESSAGE_RECEIVED, now, name="name", message=3),
        Event(2, 2, EventType.MESSAGE_RECEIVED, now, name="go", message=4),
    )
    rest = replace(
        row, version=row.version + 1, seen=4, events=2, owner=None, reminder=True, due_at=now + 24 * HOUR,
        awaiting="signal name",
    )  # fmt: skip
    return await _written(store, Commit(row.token, row.version, rest, events, consumed=((3, 1), (4, 2))))


async def _written(store: Store, commit: Commit) -> Process:
    [answer] = await store.commit([commit])
    assert answer.verdict is Verdict.APPLIED
    return commit.after


async def test_signals_that_an_old_worker_has_overlooked_are_heard_by_the_next_newer_one_even_late(
    opened: Open,
) -> None:
    client, store = await opened()
    handle = await client.start(names)
    for name in ("Ann", "Ben", "Cid"):
        await handle.signal("name", name)
    await handle.signal("go")
    old = WorkerRow(client.machine.new_id(), "old", b'[["names",""]]')
    await store.enlist(old, HOUR)
    await lived(store, old.id, handle.id_bytes)
    await opened(work=True, workflows=[names])
    assert await handle.result(LIMIT) == ["Cid", "Ann", "Ben"]
