"""What a claim takes of a queue with limits is chosen under the lock of the queue's row, however it looked before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from perdure.clock import SECOND
from perdure.kernel.queue import Queue
from perdure.store.base import Store
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import only
from tests.store.ground_postgres import PostgresGround

GATE = 9
HOSTED = (("@bank", ""),)
AT_THE_GATE = """
    CREATE SEQUENCE perdure.passed;
    CREATE OR REPLACE FUNCTION perdure.owners() RETURNS SETOF uuid LANGUAGE plpgsql VOLATILE AS $$
    BEGIN
        IF nextval('perdure.passed') = 1 THEN
            PERFORM pg_advisory_xact_lock_shared(9);
        END IF;
        RETURN QUERY SELECT DISTINCT p.owner FROM perdure.process p WHERE p.owner IS NOT NULL;
    END $$;
"""
"""The first look for lapsed leases waits at the gate: a claim makes it after it has looked for tasks that are due."""
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted"


@asynccontextmanager
async def one_claim_pauses(ground: PostgresGround) -> AsyncIterator[None]:
    """Make the next claim of a queue with limits stop after it has found nothing due, until the block ends."""
    outside = ground.outside
    text = await outside.fetchval("SELECT pg_get_functiondef('perdure.owners'::regproc)")
    try:
        await outside.execute(AT_THE_GATE)
        await outside.fetchval("SELECT pg_advisory_lock($1)", GATE)
        yield
    finally:
        await outside.fetchval("SELECT pg_advisory_unlock($1)", GATE)
        await outside.execute(text)
        await outside.execute("DROP SEQUENCE perdure.passed")


@pytest.fixture
async def other(postgres: PostgresGround) -> AsyncIterator[Store]:
    """A second store on the same database."""
    store = postgres.store()
    await store.open()
    yield store
    await store.close()


@pytest.mark.parametrize("limits", [{"concurrency": 1}, {"rate": 1, "per": 3600 * SECOND}], ids=lambda one: min(one))
async def test_tasks_that_come_while_a_claim_finds_nothing_due_are_taken_under_the_lock_of_the_queue(
    postgres: PostgresGround, trial: Trial, other: Store, limits: dict[str, Any]
) -> None:
    first, second = await trial.worker(), await trial.worker("there")
    await trial.store.records(Queue, [Queue("bank", 1, **limits)])
    async with one_claim_pauses(postgres):
        late = asyncio.create_task(Trial(postgres, other).claim(second, hosted=HOSTED))
        async with asyncio.timeout(20):
            while not await postgres.outside.fetchval(WAITING, GATE):
                pass
        for _ in range(2):
            await trial.started(kind="@bank", code="")
        taken = only((await trial.claim(first, hosted=HOSTED)).claimed)
    assert (await late).claimed == ()
    assert [row.id for row in await trial.stored() if row.owner is not None] == [taken.process.id]


async def test_a_poll_of_a_queue_with_limits_in_which_nothing_is_due_writes_nothing(
    postgres: PostgresGround, trial: Trial
) -> None:
    await trial.started(kind="@bank", code="", due_at=await trial.time.now() + 60 * SECOND)
    await trial.store.records(Queue, [Queue("bank", 1, concurrency=1)])
    written = "SELECT pg_current_xact_id_if_assigned()"
    async with postgres.outside.transaction():
        claim = "SELECT count(*) FROM perdure.claim_limited('bank', '{\"\"}', 9, false, NULL, perdure.now())"
        await postgres.outside.execute(claim)
        assert await postgres.outside.fetchval(written) is None
