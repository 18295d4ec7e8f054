"""What others have put in the way of a name, in ``public`` or in the login's own schema, the engine never uses.

So says the whole conformance suite, which PostgreSQL hears among decoys.
"""

from __future__ import annotations

import re

import asyncpg
import pytest

from perdure.clock import Computer
from perdure.kernel.commit import Start, StartVerdict
from perdure.kernel.message import Message, MessageType, SendVerdict
from perdure.kernel.process import Process, Status
from perdure.kernel.worker import WorkerRow
from perdure.store.base import Search
from perdure.store.postgres.in_transaction import PostgresInTransaction
from perdure.store.postgres.step_transaction import PostgresStepTransactions
from perdure.store.postgres.store import PostgresStore
from perdure.store.query import load
from perdure.store.step_transaction import StepTransactionVerdict
from perdure.testing.postgres import Server
from tests.store.postgres.ambush import PATHS, ambush, login, safe


async def test_a_name_that_says_no_schema_is_caught(shared_server: Server, ambushed: dict[str, str]) -> None:
    async def fall_into(path: str) -> None:
        async with ambush(shared_server, ambushed[path]):
            session = await asyncpg.connect(login(shared_server, ambushed[path]))
            with pytest.raises(asyncpg.RaiseError, match="the decoy"):
                await session.fetch("SELECT unnest(ARRAY[gen_random_uuid()])")
            await session.close()

    for path in PATHS:
        with pytest.raises(AssertionError, match="a decoy was used"):
            await fall_into(path)


@pytest.mark.parametrize("options", ["search_path=public,pg_catalog", "options=-csearch_path%3Dpublic,pg_catalog"])
async def test_a_search_path_in_the_url_turns_no_name(
    shared_server: Server, ambushed: dict[str, str], options: str
) -> None:
    async with ambush(shared_server, ambushed["turned"]):
        store = PostgresStore(login(shared_server, ambushed["turned"], options))
        await store.open()
        await store.start([Start(Process(Computer().new_id(), "order", None, b"[]"))])
        assert await store.count(Search()) == [("order", Status.RUNNING, 1)]
        await store.close()


async def test_in_the_callers_transaction_no_decoy_is_used_whatever_path_the_connection_has(
    shared_server: Server, ambushed: dict[str, str]
) -> None:
    async with ambush(shared_server, ambushed["turned"]):
        url = login(shared_server, ambushed["turned"])
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            inside = PostgresInTransaction(url, connection)
            process = Process(Computer().new_id(), "order", "A", b"[]", deadline=1_000_000, attributes=b'{"a":1}')
            started = await inside.start(Start(process))
            sent = await inside.send(Message(Computer().new_id(), started.id, MessageType.SIGNAL, "paid", b"1"))
        await connection.close()
        assert (started.verdict, sent.verdict) == (StartVerdict.CREATED, SendVerdict.DELIVERED)


async def test_a_step_with_a_transaction_uses_no_decoy_around_it(
    shared_server: Server, ambushed: dict[str, str]
) -> None:
    async with ambush(shared_server, ambushed["turned"]):
        url = login(shared_server, ambushed["turned"])
        store, step_transactions, machine = PostgresStore(url), PostgresStepTransactions(url, Computer()), Computer()
        await store.open()
        worker = await store.enlist(WorkerRow(machine.new_id(), "one"), 60_000_000)
        process = Process(machine.new_id(), "order", None, b"[]", owner=worker.id)
        await store.start([Start(process, lease=60_000_000)])
        message = Message(machine.new_id(), process.id, MessageType.RESULT, "1", b"1")
        for kept in (True, False):
            transaction = await step_transactions.take()
            assert await transaction.begin(process.id, message.id, 10.0) is kept
            if kept:
                assert (
                    await transaction.keep(message, worker.id, process.token)
                ).verdict is StepTransactionVerdict.KEPT
            await transaction.end()
        await step_transactions.close()
        await store.close()


async def test_every_function_has_a_fixed_path_or_says_the_schema_of_every_name(
    shared_server: Server, ambushed: dict[str, str]
) -> None:
    outside = await asyncpg.connect(safe(shared_server, ambushed["turned"]))
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
    known = r"(?!(?:SELECT|FROM|LATERAL|OVER|coalesce|numeric|bit|CAST|AS|IN|EXISTS|VALUES|ANY|k|u|migration)\b)"
    return re.findall(rf"(?<![\w.\"]){known}[a-z]\w*\s?\(|(?<=\s)[-+/|<>=@&]+(?=\s)", text, re.I)


WITHOUT_A_PATH = """
SELECT p.proname, p.prosrc FROM pg_proc p
WHERE p.pronamespace = 'perdure'::regnamespace
  AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)
"""
