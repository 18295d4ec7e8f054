"""Law accepted_is_kept: what was answered is on disk, although this server would not insist on it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from perdure.kernel.commit import Start
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import LEASE, going_on
from tests.store.ground_postgres import PostgresGround

BEHIND = "SELECT pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()"
TIMES = 20
"""So often one after another: the server writes its log by itself too, a few times a second."""


@pytest.fixture(params=["postgres", "pooled"])
def ground(request: pytest.FixtureRequest) -> PostgresGround:
    """The database, reached directly and by way of a pooler."""
    found: PostgresGround = request.getfixturevalue(request.param)
    return found


async def test_a_start_a_send_and_a_commit_are_on_disk_when_they_are_answered(ground: PostgresGround) -> None:
    assert await ground.outside.fetchval("SHOW synchronous_commit") == "off"
    store = ground.store()
    await store.open()
    trial = Trial(ground, store)
    worker = await trial.worker()
    behind = 0
    for _ in range(TIMES):
        rows = [trial.process(owner=worker, token=1), trial.process(owner=worker, token=1)]
        for written in (
            store.start([Start(row, lease=LEASE) for row in rows]),
            store.send([trial.signal(rows[0].id)]),
            store.commit([going_on(rows[0])]),
            store.commit([going_on(replace(rows[0], version=1, events=1)), going_on(rows[1])]),
        ):
            assert await written
            behind += await ground.outside.fetchval(BEHIND)
    await store.close()
    assert behind < TIMES  # of four times as many; whoever else reads may leave a little in the log


async def test_the_setting_ends_with_the_transaction(postgres: PostgresGround, trial: Trial) -> None:
    async with postgres.outside.transaction():
        await postgres.outside.fetch("SELECT * FROM perdure.send('{}', '{}', '{}', '{}', '{}', '{}', '{}')")
        assert await postgres.outside.fetchval("SHOW synchronous_commit") == "on"
    assert await postgres.outside.fetchval("SHOW synchronous_commit") == "off"
