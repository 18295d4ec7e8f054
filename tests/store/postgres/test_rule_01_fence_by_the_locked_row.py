"""Rule 1: a commit is fenced by the row as it is when it is locked, not as the statement's snapshot saw it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from perdure.kernel.commit import Verdict
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import finished, going_on, only
from tests.store.ground_postgres import PostgresGround

GATE = 7
PASSES = f"pg_advisory_xact_lock_shared({GATE}) IS NOT NULL"
LOCKS = {
    "commit": ("FOR NO KEY UPDATE SKIP LOCKED", f"AND {PASSES} FOR NO KEY UPDATE SKIP LOCKED"),
    "commit_alone": ("FOR NO KEY UPDATE SKIP LOCKED", f"AND {PASSES} FOR NO KEY UPDATE SKIP LOCKED"),
}
"""The locking statement of each function that commits, and how it is made to wait at the gate."""

WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted"


@asynccontextmanager
async def paused_between_snapshot_and_lock(ground: PostgresGround) -> AsyncIterator[None]:
    """Make every commit stop in its locking statement, snapshot taken and no row locked, until the block ends."""
    outside = ground.outside
    texts = {
        name: await outside.fetchval("SELECT pg_get_functiondef($1::text::regproc)", f"perdure.{name}")
        for name in LOCKS
    }
    try:
        for name, (lock, gate) in LOCKS.items():
            assert texts[name].count(lock) == 1
            await outside.execute(texts[name].replace(lock, gate))
        await outside.fetchval("SELECT pg_advisory_lock($1)", GATE)
        yield
    finally:
        await outside.fetchval("SELECT pg_advisory_unlock($1)", GATE)
        for text in texts.values():
            await outside.execute(text)


async def _wait_until_paused(ground: PostgresGround) -> None:
    async with asyncio.timeout(20):
        while not await ground.outside.fetchval(WAITING, GATE):
            pass


@pytest.mark.parametrize("beside", [0, 2], ids=["alone", "in a batch"])
async def test_a_row_claimed_between_snapshot_and_lock_refuses_the_late_commit(
    postgres: PostgresGround, trial: Trial, beside: int
) -> None:
    first, second = await trial.worker(), await trial.worker("there")
    row = await trial.owned(first)
    await trial.time.advance(16)
    others = [await trial.owned(first, kind="other") for _ in range(beside)]
    other = postgres.store()
    await other.open()
    async with paused_between_snapshot_and_lock(postgres):
        late = asyncio.create_task(trial.store.commit([finished(one) for one in (row, *others)]))
        await _wait_until_paused(postgres)
        taken = only((await Trial(postgres, other).claim(second)).claimed).process
    assert [answer.verdict for answer in await late] == [Verdict.REFUSED, *[Verdict.APPLIED] * beside]
    assert await trial.row(row.id) == taken
    assert (await trial.whole(row.id)).events == ()
    await other.close()


async def test_the_neighbours_of_a_refused_commit_keep_their_own_events(postgres: PostgresGround, trial: Trial) -> None:
    worker = await trial.worker()
    rows = [await trial.owned(worker) for _ in range(4)]
    async with paused_between_snapshot_and_lock(postgres):
        commits = [going_on(row, steps=steps) for steps, row in enumerate(rows, 1)]
        batch = asyncio.create_task(trial.store.commit(commits))
        await _wait_until_paused(postgres)
        # Another command overtakes the batch on the second row.
        await postgres.outside.execute(
            "UPDATE perdure.process SET token = token + 1, owner = NULL WHERE id = $1", UUID(bytes=rows[1].id)
        )
    assert [answer.verdict for answer in await batch] == ["applied", "refused", "applied", "applied"]
    assert [len((await trial.whole(row.id)).events) for row in rows] == [1, 0, 3, 4]
