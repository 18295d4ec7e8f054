"""What others have put in the way of a name, in ``public`` or in the login's own schema, the engine never uses."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from perdure.clock import Machine
from perdure.kernel.commit import Start, StartVerdict
from perdure.kernel.message import Message, MessageType, SendVerdict
from perdure.kernel.process import Process, Status
from perdure.kernel.worker import Worker
from perdure.store.base import Search
from perdure.store.pact import PactVerdict
from perdure.store.postgres import PostgresStore
from perdure.store.postgres_guest import PostgresGuest
from perdure.store.postgres_pact import PostgresPacts
from perdure.store.query import load
from perdure.testing.clock import NOON
from perdure.testing.conformance import Ground, StoreConformance
from perdure.testing.conformance.beating import Beating
from perdure.testing.conformance.claiming import Claiming
from perdure.testing.conformance.committing import Committing
from perdure.testing.conformance.limiting import Limiting
from perdure.testing.conformance.outward import Outward
from perdure.testing.conformance.pruning import Pruning
from perdure.testing.conformance.reading import Reading
from perdure.testing.conformance.seizing import Seizing
from perdure.testing.conformance.sending import Sending
from perdure.testing.conformance.starting import Starting
from perdure.testing.conformance.sweeping import Sweeping
from perdure.testing.conformance.waking import Waking
from perdure.testing.postgres import Server, at_once
from tests.store.ground_postgres import PostgresGround, empty
from tests.store.postgres import decoy

PATHS = {"ordinary": f"{decoy.OWN}, public", "turned": f"{decoy.OWN}, public, pg_catalog"}
"""The engine's own search path: as servers come, and with what the server ships named last."""


@pytest.fixture(scope="module")
def ambushed(shared_server: Server) -> str:
    """A migrated database full of decoys, which were there before its schema was made; the answer is its name."""
    name = shared_server.fresh_database().rpartition("/")[2]
    shared_server.execute("postgres", f"DROP ROLE IF EXISTS {decoy.ENGINE}; DROP ROLE IF EXISTS {decoy.STRANGER}")
    shared_server.execute(
        name,
        f"CREATE ROLE {decoy.ENGINE} LOGIN; CREATE ROLE {decoy.STRANGER} LOGIN;"
        f"GRANT ALL ON DATABASE {name} TO {decoy.ENGINE}; GRANT ALL ON SCHEMA public TO {decoy.STRANGER};"
        f"CREATE SCHEMA {decoy.OWN} AUTHORIZATION {decoy.STRANGER}; GRANT USAGE ON SCHEMA {decoy.OWN} TO PUBLIC;"
        f"ALTER ROLE {decoy.ENGINE} SET search_path = {PATHS['turned']};" + decoy.TRAP,
    )
    at_once(lambda: _plant(shared_server.url(name).replace("perdure@", f"{decoy.STRANGER}@")))

    async def migrate() -> None:
        store = PostgresStore(_login(shared_server, name))
        await store.open()
        await store.close()

    at_once(migrate)
    return name


async def _plant(url: str) -> None:
    connection = await asyncpg.connect(url, server_settings={"search_path": "pg_catalog"})
    try:
        known: dict[str, list[str]] = {}
        for name, given in await connection.fetch(decoy.KNOWN, sorted(decoy.names())):
            known.setdefault(name, []).append(given)
        for schema in ("public", decoy.OWN):
            await connection.execute(decoy.planted(schema, known))
    finally:
        await connection.close()


def _login(server: Server, name: str, options: str = "") -> str:
    return server.url(name, options).replace("perdure@", f"{decoy.ENGINE}@")


class Ambushed:
    """Sentences of the conformance suite, where decoys stand in the way of every name."""

    options = ""
    path = ""
    store, trial, time = StoreConformance.store, StoreConformance.trial, StoreConformance.time

    @pytest.fixture
    async def ground(self, shared_server: Server, ambushed: str) -> AsyncIterator[Ground]:
        async with _ambush(shared_server, ambushed, self.path) as outside:
            login = _login(shared_server, ambushed, self.options)
            ground = PostgresGround(login, _safe(shared_server, ambushed), outside)
            ground.hints = not self.options
            yield ground


class TestDirectly(Ambushed, Seizing, Waking):
    path = "ordinary"


class TestBehindAPooler(
    Ambushed, Starting, Sending, Claiming, Limiting, Committing, Outward, Beating, Sweeping, Reading, Pruning,
):  # fmt: skip
    """As behind a pooler, where the search path of the session is the login's own."""

    options = "pooler=transaction"
    path = "turned"


async def test_a_name_that_says_no_schema_is_caught(shared_server: Server, ambushed: str) -> None:
    async def ambush(path: str) -> None:
        async with _ambush(shared_server, ambushed, path):
            login = await asyncpg.connect(_login(shared_server, ambushed))
            with pytest.raises(asyncpg.RaiseError, match="the decoy"):
                await login.fetch("SELECT unnest(ARRAY[gen_random_uuid()])")
            await login.close()

    for path in PATHS:
        with pytest.raises(AssertionError, match="a decoy was used"):
            await ambush(path)


@pytest.mark.parametrize("options", ["search_path=public,pg_catalog", "options=-csearch_path%3Dpublic,pg_catalog"])
async def test_a_search_path_in_the_url_turns_no_name(shared_server: Server, ambushed: str, options: str) -> None:
    async with _ambush(shared_server, ambushed, "turned"):
        store = PostgresStore(_login(shared_server, ambushed, options))
        await store.open()
        await store.start([Start(Process(Machine().new_id(), "order", None, b"[]"))])
        assert await store.count(Search()) == [("order", Status.RUNNING, 1)]
        await store.close()


async def test_a_guest_uses_no_decoy_whatever_path_his_connection_has(shared_server: Server, ambushed: str) -> None:
    async with _ambush(shared_server, ambushed, "turned"):
        url = _login(shared_server, ambushed)
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            guest = PostgresGuest(url, connection)
            process = Process(Machine().new_id(), "order", "A", b"[]", deadline=1_000_000, attributes=b'{"a":1}')
            started = await guest.start(Start(process))
            sent = await guest.send(Message(Machine().new_id(), started.id, MessageType.SIGNAL, "paid", b"1"))
        await connection.close()
        assert (started.verdict, sent.verdict) == (StartVerdict.CREATED, SendVerdict.DELIVERED)


async def test_a_step_with_a_transaction_uses_no_decoy_around_it(shared_server: Server, ambushed: str) -> None:
    async with _ambush(shared_server, ambushed, "turned"):
        url = _login(shared_server, ambushed)
        store, pacts, machine = PostgresStore(url), PostgresPacts(url, Machine()), Machine()
        await store.open()
        worker = await store.enlist(Worker(machine.new_id(), "one"), 60_000_000)
        process = Process(machine.new_id(), "order", None, b"[]", owner=worker.id)
        await store.start([Start(process, lease=60_000_000)])
        message = Message(machine.new_id(), process.id, MessageType.RESULT, "1", b"1")
        for kept in (True, False):
            pact = await pacts.take()
            assert await pact.begin(process.id, message.id, 10.0) is kept
            if kept:
                assert (await pact.keep(message, worker.id, process.token)).verdict is PactVerdict.KEPT
            await pact.end()
        await pacts.close()
        await store.close()


async def test_every_function_has_a_fixed_path_or_says_the_schema_of_every_name(
    shared_server: Server, ambushed: str
) -> None:
    outside = await asyncpg.connect(_safe(shared_server, ambushed))
    left = {row[0]: row[1] for row in await outside.fetch(WITHOUT_A_PATH)}
    await outside.close()
    assert sorted(left) == ["instant", "micros", "worker_lock"]
    for body in left.values():
        text = re.sub(r"'[^']*'|OPERATOR\(pg_catalog\.\S+\)|::(bit\(64\)|bigint|pg_catalog\.\w+)", " ", body)
        text = re.sub(r"pg_catalog\.\w+|\bextract(?=\()", "known", text)  # extract is a keyword
        assert not re.search(r"[-+*/|<>=:]|(?!known)\b[a-z]\w*\(", text), body


def test_every_statement_of_ours_says_the_schema_of_every_operator_and_function() -> None:
    here = (*load("postgres").items(),)
    bare = {name: _bare(sql) for name, sql in here}
    assert {name: found for name, found in bare.items() if found} == {}
    assert _bare("SELECT left(a, 1) FROM perdure.x WHERE a = b") == ["left(", "="]


def _bare(sql: str) -> list[str]:
    """The operators and functions of a statement that say no schema."""
    sql = re.sub(r"\$\$.*\$\$", " ", sql, flags=re.DOTALL)  # a block, which is sent on a fixed path
    text = re.sub(r"--[^\n]*|'[^']*'|OPERATOR\(pg_catalog\.\S+?\)", " ", sql)
    text = re.sub(r"\bSET \w+( \w+)? = [^;]*", " ", re.sub(r"\$\d+|::", " ", text))
    known = r"(?!(?:SELECT|coalesce|numeric|bit|CAST|AS|IN|EXISTS|VALUES|ANY|k|migration)\b)"
    return re.findall(rf"(?<![\w.\"]){known}[a-z]\w*\s?\(|(?<=\s)[-+/|<>=@&]+(?=\s)", text, re.I)


WITHOUT_A_PATH = """
SELECT p.proname, p.prosrc FROM pg_proc p
WHERE p.pronamespace = 'perdure'::regnamespace
  AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)
"""


def _safe(server: Server, name: str) -> str:
    return server.url(name, "search_path=pg_catalog")


@asynccontextmanager
async def _ambush(server: Server, name: str, path: str) -> AsyncIterator[Any]:
    """An empty database with that search path for the engine; AssertionError if a decoy was used meanwhile."""
    outside = await asyncpg.connect(_safe(server, name))
    try:
        await outside.execute(f"ALTER ROLE {decoy.ENGINE} SET search_path = {PATHS[path]}")
        await outside.execute("ALTER SEQUENCE public.caught RESTART")
        await empty(outside, NOON)
        yield outside
        assert not await outside.fetchval(decoy.CAUGHT), "a decoy was used"
    finally:
        await outside.close()
