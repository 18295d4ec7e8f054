"""Copies of a failed process, written through the doors of the store: many thousands in a few seconds."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.client.client import Client
from perdure.kernel.commit import CREATED, Commit, Start, Verdict
from perdure.kernel.process import Process
from perdure.store.base import Search

AT_ONCE = 1_000


async def copy(client: Client, id: str, number: int) -> None:
    """Write so many processes that have failed as that one has."""
    row = await client.row(id)
    events = tuple(await client.store.history(row.id, row.run, limit=row.events))
    for first in range(0, number, AT_ONCE):
        ids = [client.machine.new_id() for _ in range(min(AT_ONCE, number - first))]
        starts = [Start(Process(one, row.kind, None, row.input, code=row.code)) for one in ids]
        assert {answer.verdict for answer in await client.store.start(starts)} == {CREATED}
        stored = await client.store.search(Search(ids=tuple(ids), limit=len(ids)))
        ends = [
            replace(
                row, id=one.id, key=None, token=one.token, version=one.version + 1, created_at=one.created_at, inbox=0
            )
            for one in stored
        ]
        commits = [Commit(one.token, one.version, end, events) for one, end in zip(stored, ends, strict=True)]
        assert {answer.verdict for answer in await client.store.commit(commits)} == {Verdict.APPLIED}
