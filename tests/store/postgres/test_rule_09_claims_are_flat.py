"""Rule 9: a claim seeks once for each kind and priority; sleepers and strangers cost it nothing."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec import json

from perdure.clock import SECOND
from perdure.kernel.queue import Queue
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import LEASE
from tests.store.ground_postgres import PostgresGround

FILL = """
    INSERT INTO perdure.process (id, created_at, changed_at, due_at, status, run, version, token, inbox, seen, events,
                                 deaths, alone_deaths, priority, reminder, kind, code, input)
    SELECT gen_random_uuid(), t, t, t + due, 'running', 1, 0, 0, 0, 0, 0, 0, 0, 4, idle, kind, '1', '1'
    FROM generate_series(1, $1), (SELECT perdure.now()) AS n(t),
         (VALUES ('order', interval '1 hour', false), ('elsewhere', interval '-1 hour', false),
                 ('order', interval '-1 hour', true)) AS v(kind, due, idle)
"""
CLAIM = """
    EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM perdure.claim($1, '{order}', '{1}', 100, $2, false, NULL)
"""

DEEPER = 15
"""Pages more for each row claimed: indexes are a level deeper, and split where the claim writes into them.

Reading what is not due would cost many thousands in all.
"""


async def _pages_for_a_claim(ground: PostgresGround, worker: bytes, claim: str = CLAIM) -> int:
    """How many pages a claim of 100 due rows touches, once its plans are made; the claim is undone."""
    pages = 0
    for _ in range(2):
        transaction = ground.outside.transaction()
        await transaction.start()
        plan = await ground.outside.fetchval(claim, UUID(bytes=worker), LEASE)
        await transaction.rollback()
        [told] = json.decode(plan)
        pages = told["Plan"]["Shared Hit Blocks"] + told["Plan"]["Shared Read Blocks"]
    return pages


async def test_sleepers_idlers_and_strangers_cost_a_claim_nothing(postgres: PostgresGround, trial: Trial) -> None:
    worker = await trial.worker()
    for _ in range(100):
        await trial.started(due_at=await trial.time.now() - SECOND)
    pages = []
    for rows in (2_000, 20_000):
        await postgres.outside.execute(FILL, rows)
        pages.append(await _pages_for_a_claim(postgres, worker))
    assert pages[1] - pages[0] < 100 * DEEPER


async def test_owned_rows_of_others_cost_a_claim_nothing(postgres: PostgresGround, trial: Trial) -> None:
    worker = await trial.worker()
    for _ in range(100):
        await trial.started(due_at=await trial.time.now() - SECOND)
    pages = []
    for rows in (2_000, 10_000):
        await postgres.outside.execute(FILL, rows)
        owner = UUID(bytes=trial.ids.new_id())
        await postgres.outside.execute(
            "UPDATE perdure.process SET owner = $1, due_at = perdure.now() + interval '1 hour' "
            "WHERE owner IS NULL AND NOT reminder AND due_at > perdure.now()",
            owner,
        )
        pages.append(await _pages_for_a_claim(postgres, worker))
    assert pages[1] - pages[0] < 100 * DEEPER


WAITING = """
    INSERT INTO perdure.process (id, created_at, changed_at, due_at, status, run, version, token, inbox, seen, events,
                                 deaths, alone_deaths, priority, reminder, kind, code, input, share)
    SELECT gen_random_uuid(), t, t, t - interval '1 minute', 'running', 1, 0, 0, 0, 0, 0, 0, 0, 4, false, '@bank', '',
           '1', 'tenant ' || (n % $2)
    FROM generate_series(1, $1) AS s(n), (SELECT perdure.now()) AS k(t)
"""
LIMITED = """
    EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
    SELECT * FROM perdure.claim_queued($1, '{@bank}', '{""}', 500, $2, false, NULL)
"""


@pytest.mark.parametrize("shares", [1, 20, 500])
async def test_however_many_tasks_wait_a_claim_of_a_queue_with_limits_reads_a_few(
    postgres: PostgresGround, trial: Trial, shares: int
) -> None:
    worker = await trial.worker()
    await trial.store.records(Queue, [Queue("bank", 1, concurrency=100, share_concurrency=50)])
    pages = []
    for rows in (2_000, 20_000):
        await postgres.outside.execute(WAITING, rows, shares)
        pages.append(await _pages_for_a_claim(postgres, worker, LIMITED))
    assert pages[1] - pages[0] < 100 * DEEPER


async def test_a_poll_of_a_full_queue_writes_nothing(postgres: PostgresGround, trial: Trial) -> None:
    worker = await trial.worker()
    await trial.store.records(Queue, [Queue("bank", 1, concurrency=1)])
    await trial.owned(worker, kind="@bank")
    await trial.started(kind="@bank")
    written = "SELECT pg_current_xact_id_if_assigned()"
    async with postgres.outside.transaction():
        claim = "SELECT count(*) FROM perdure.claim_limited('bank', '{1}', 9, false, NULL, perdure.now())"
        await postgres.outside.execute(claim)
        assert await postgres.outside.fetchval(written) is None
