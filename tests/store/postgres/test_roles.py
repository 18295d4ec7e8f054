"""Logins of narrower rights: each verb by a real login of each role, done or refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import asyncpg
import pytest

from perdure.authoring.registry import Registry
from perdure.client.handle import Handle
from perdure.clock import Computer
from perdure.engine import Engine
from perdure.errors import StoreError
from perdure.kernel.commit import Start, StartVerdict
from perdure.kernel.event import HistoryWanted
from perdure.kernel.message import Message, MessageType, SendVerdict
from perdure.kernel.names import id_bytes
from perdure.kernel.process import Process
from perdure.store.base import Overdue, Search
from perdure.store.postgres.in_transaction import PostgresInTransaction
from perdure.store.postgres.roles import ROLES, statements
from perdure.store.postgres.store import PostgresStore
from perdure.testing.postgres import Server, at_once
from tests.transactions.shop import bill

Verb = Callable[[Engine, str], Awaitable[object]]


async def lead(engine: Engine) -> None:
    """Lead for a moment."""
    async with engine.leader("import"):
        pass


async def read_a_stream(engine: Engine) -> int:
    """Read all that stands behind its position."""
    return len([batch async for batch in engine.streams.read("audit", wait=False)])


VERBS: dict[str, tuple[set[str], Verb]] = {
    "ps": ({"look", "operate"}, lambda engine, id: engine.list()),
    "count": ({"look", "operate"}, lambda engine, id: engine.count()),
    "history": ({"look", "operate"}, lambda engine, id: engine.process(id).history()),
    "histories": (
        {"look", "operate"},
        lambda engine, id: engine.store.histories([HistoryWanted(id_bytes(id), 1, 9)], most=1),
    ),
    "preview": ({"look", "operate"}, lambda engine, id: engine.operations.preview("terminate", "kind = bill")),
    "status": ({"look", "operate"}, lambda engine, id: engine.process(id).status()),
    "workers": (
        {"look", "operate"},
        lambda engine, id: engine.store.search(Search(overdue=Overdue.OWNED, owner=bytes(16))),
    ),
    "queues": ({"look", "operate"}, lambda engine, id: engine.queues.list()),
    "start": ({"start", "operate"}, lambda engine, id: engine.start(bill.options(key="own"), 2)),
    "start with a signal": ({"start", "operate"}, lambda engine, id: engine.start(bill.options(signal=("paid", 1)), 2)),
    "start many": ({"start", "operate"}, lambda engine, id: engine.start_many(bill, [[1], [2]])),
    "signal": ({"signal", "operate"}, lambda engine, id: engine.process(id).signal("paid", 1)),
    "cancel": ({"operate"}, lambda engine, id: engine.process(id).cancel()),
    "hold": ({"operate"}, lambda engine, id: engine.process(id).hold()),
    "terminate": ({"operate"}, lambda engine, id: engine.process(id).terminate()),
    "breakers": ({"look", "operate"}, lambda engine, id: engine.breakers.list()),
    "leaders": ({"look", "operate"}, lambda engine, id: engine.leaders.list()),
    "lead": ({"operate"}, lambda engine, id: lead(engine)),
    "open a breaker": ({"operate"}, lambda engine, id: engine.breakers.open("bank")),
    "remove": ({"operate"}, lambda engine, id: engine.process(id).remove(force=True)),
    "edit": ({"operate"}, lambda engine, id: engine.process(id).edit_input([2])),
    "fork": ({"operate"}, lambda engine, id: engine.process(id).fork()),
    "limit a queue": ({"operate"}, lambda engine, id: engine.queues.limit("bank", concurrency=1)),
    "list streams": ({"look", "operate"}, lambda engine, id: engine.streams.list()),
    "put a stream": ({"operate"}, lambda engine, id: engine.streams.put("audit")),
    "look into a stream": ({"look", "operate"}, lambda engine, id: engine.streams.tail("audit")),
    "read a stream": ({"operate"}, lambda engine, id: read_a_stream(engine)),
    "remove a stream": ({"operate"}, lambda engine, id: engine.streams.remove("audit")),
    "pause recovery": ({"operate"}, lambda engine, id: engine.recovery.pause()),
    "limit recovery": ({"operate"}, lambda engine, id: engine.recovery.limit(9)),
    "see the sweeps": ({"look", "operate"}, lambda engine, id: engine.recovery.sweeps()),
}
"""Each verb, and which roles beside that of workers carry it out."""


@pytest.fixture(scope="module")
def logins(shared_server: Server) -> Iterator[str]:
    """A database with the roles, and a login for each; the answer is its URL."""
    url = shared_server.fresh_database()

    async def make() -> None:
        store = PostgresStore(url)
        await store.open()
        await store.close()
        for _ in range(2):  # the second time there is nothing to do
            assert await store.backend.make_roles() == [f"perdure_{role}" for role in ROLES]

    at_once(make)
    name = url.rpartition("/")[2]
    for role in ROLES:
        shared_server.execute(name, f"CREATE ROLE only_{role} LOGIN IN ROLE perdure_{role}")
    yield url
    for role in ROLES:
        shared_server.execute(name, f"DROP OWNED BY perdure_{role}; DROP ROLE only_{role}; DROP ROLE perdure_{role}")


def login(url: str, role: str) -> str:
    """The URL of that role's own login."""
    return url.replace("perdure@", f"only_{role}@")


async def attempted(verb: Verb, engine: Engine, id: str) -> str:
    """What became of a verb: nothing, or the name of the right that is missing."""
    try:
        await verb(engine, id)
    except StoreError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("role", ROLES)
async def test_each_verb_is_carried_out_for_the_roles_that_may_and_refused_to_others(logins: str, role: str) -> None:
    async with Engine(logins) as owner, Engine(login(logins, role), registry=Registry()) as engine:
        for name, (may, verb) in VERBS.items():
            handle: Handle[None] = await owner.start(bill, 1)
            await owner.streams.put("audit")
            told = await attempted(partial(verb), engine, handle.id)
            assert (told == "") == (role in may or role == "work"), (name, told)
            if told:
                assert "42501" in told and any(f"_{needed}" in told for needed in may), (name, told)


async def test_whoever_may_start_waits_for_the_result_of_a_worker_with_its_own_role(logins: str) -> None:
    async with (
        Engine(login(logins, "work"), work=True, workflows=[bill]),
        Engine(login(logins, "start"), registry=Registry()) as engine,
    ):
        handle = await engine.start(bill, 21)
        await handle.result(timeout=30)


@pytest.mark.parametrize("role", ["look", "start", "signal", "operate"])
async def test_no_table_is_open_to_a_client(logins: str, role: str) -> None:
    connection = await asyncpg.connect(login(logins, role))
    for table in (
        "process", "event", "message", "worker", "queue", "circuit", "leader", "note", "event_stream", "clock",
        "key_kept",
    ):  # fmt: skip
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch(f"TABLE perdure.{table}")
    for call in (
        "enlist(gen_random_uuid(), 'x', '', 1, false)",
        "prune(0, 0, 1)",
        "retire(gen_random_uuid(), 0, true)",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch(f"SELECT perdure.{call}")
    await connection.close()


async def test_no_function_is_open_to_all(logins: str) -> None:
    owner = await asyncpg.connect(logins)
    open_to_all = await owner.fetch(
        "SELECT p.proname FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a "
        "WHERE p.pronamespace = 'perdure'::regnamespace AND a.grantee = 0"
    )
    await owner.close()
    assert open_to_all == []


@pytest.mark.parametrize(
    "forged",
    [
        "start_by_client(ARRAY[ROW(gen_random_uuid(), '@bank', NULL, '', 0, 0, NULL, 0, NULL, 0, NULL, '', NULL, NULL)"
        "::perdure.start_in], NULL, NULL, NULL, false, true, NULL)",
        "start_by_client(ARRAY[ROW(gen_random_uuid(), 'x', NULL, '', 0, 7, NULL, 0, NULL, 0, NULL, '', NULL, NULL)"
        "::perdure.start_in], NULL, NULL, NULL, false, true, NULL)",
        "start_by_client(NULL, NULL, ARRAY[gen_random_uuid()], NULL, false, true, NULL)",
    ],
)
async def test_a_start_that_only_a_worker_may_write_is_refused_to_a_client(logins: str, forged: str) -> None:
    connection = await asyncpg.connect(login(logins, "start"))
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="may only start"):
        await connection.fetch(f"SELECT perdure.{forged}")
    await connection.close()


async def test_a_message_that_is_no_signal_and_no_call_is_refused_to_a_client(logins: str) -> None:
    connection = await asyncpg.connect(login(logins, "signal"))
    for type in (2, 3, 4, 5, 6, 8, 0):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="only send signals"):
            await connection.fetch(
                "SELECT perdure.send_by_client(ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()], ARRAY[$1::int],"
                "ARRAY['x'], ARRAY[''::bytea], ARRAY[NULL::text], ARRAY[NULL::bytea])",
                type,
            )
    await connection.close()


async def test_in_the_callers_transaction_starts_need_the_role_that_starts_and_signals_the_one_that_signals(
    logins: str,
) -> None:
    machine = Computer()
    process = Process(machine.new_id(), "order", "guest", b"[]")
    message = Message(machine.new_id(), process.id, MessageType.SIGNAL, "paid", b"1")
    for role, other in (("start", "signal"), ("signal", "start")):
        connection = await asyncpg.connect(login(logins, role))
        async with connection.transaction():
            inside = PostgresInTransaction(logins, connection)
            if role == "start":
                assert (await inside.start(Start(process))).verdict is StartVerdict.CREATED
            else:
                assert (await inside.send(message)).verdict is SendVerdict.DELIVERED
        transaction = connection.transaction()
        await transaction.start()
        inside = PostgresInTransaction(logins, connection)
        with pytest.raises(StoreError, match="42501"):
            await (inside.start(Start(process)) if other == "start" else inside.send(message))
        await transaction.rollback()
        await connection.close()


async def test_the_answers_to_calls_are_read_by_whoever_may_call_and_no_other_event_is(logins: str) -> None:
    connection = await asyncpg.connect(login(logins, "signal"))
    ask = "SELECT perdure.answers_seen(gen_random_uuid(), 1, 0, 1, false, $1::int[], $2::text[])"
    assert await connection.fetch(ask, [38, 39], ["x"]) == []
    for types, names in ((None, ["x"]), ([38, 39], None), ([38], ["x"])):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="only the answers"):
            await connection.fetch(ask, types, names)
    await connection.close()


async def test_a_narrow_login_works_behind_a_pooler(logins: str) -> None:
    async with Engine(f"{login(logins, 'start')}?pooler=transaction", registry=Registry()) as engine:
        assert (await engine.start(bill.options(key="pooled"), 2)).created


async def test_whoever_may_create_no_roles_is_told_what_to_hand_on(logins: str) -> None:
    with pytest.raises(StoreError) as refused:
        await PostgresStore(login(logins, "work")).backend.make_roles()
    assert statements("perdure") in str(refused.value)
