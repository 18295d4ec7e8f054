"""What most tests with an engine stand on: sessions that go from one store to the next, each as new, but for plans."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from perdure.store.postgres.connection import connect, plain
from perdure.store.postgres.url import address_of
from tests.kept_sessions import PATH, KeptSessions
from tests.pooler import program

needs_pooler = pytest.mark.skipif(program() is None, reason="PgBouncer is not installed")
LEFT = """
    SET search_path = public; CREATE TEMP TABLE mine (); PREPARE asked AS SELECT 1; LISTEN heard;
    SELECT pg_advisory_lock(1)
"""
FOUND = """
    SELECT current_setting('search_path') AS path, to_regclass('pg_temp.mine') AS temporary,
        ARRAY(SELECT name FROM pg_prepared_statements WHERE name = 'asked') AS prepared,
        ARRAY(SELECT * FROM pg_listening_channels()) AS heard,
        (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS locks
"""
PID = "SELECT pg_backend_pid()"


@needs_pooler
async def test_a_session_is_handed_on_as_new(migrated: str, kept_sessions: KeptSessions) -> None:
    url = kept_sessions.url(migrated)
    first = await asyncpg.connect(url)
    session = await first.fetchval(PID)
    await first.execute(LEFT)
    await first.close()
    others = []
    async with asyncio.timeout(60):
        while await (heir := await asyncpg.connect(url)).fetchval(PID) != session:
            others.append(heir)  # while it is held, the next one gets another session
    found = await heir.fetchrow(FOUND)
    assert dict(found) == {"path": PATH, "temporary": None, "prepared": [], "heard": [], "locks": 0}
    for one in (heir, *others):
        await one.close()


@needs_pooler
async def test_only_a_store_that_asks_for_the_fixed_path_gets_such_a_session(
    migrated: str, kept_sessions: KeptSessions
) -> None:
    address = address_of(migrated)
    with kept_sessions.of(migrated):
        kept = await connect(address, "writes")
        own = [await plain(address, "writes"), await connect(address, "presence")]
    ports = [one._addr[1] for one in (kept, *own)]
    assert ports[0] != ports[1] == ports[2]
    assert await own[0].fetchval("SELECT current_setting('search_path')") != PATH
    for one in (kept, *own):
        await one.close()
