"""Where the caller's transaction cannot be used, and how it fares beside others."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from perdure.clock import Computer
from perdure.engine import Engine
from perdure.errors import InvalidInput, KeyConflict, PayloadTooLarge, PerdureError, StoreTooOld, StoreUnavailable
from perdure.kernel.message import SendVerdict
from perdure.portal import BlockingEngine
from perdure.store.base import Search
from perdure.store.sealed.codec import AesGcm
from perdure.store.sealed.offload import Folder
from perdure.testing.postgres import Server
from tests.transactions.caller import address, by_asyncpg, by_psycopg, by_sqlite3, by_sqlite3_immediate, done
from tests.transactions.shop import bill, greet

LIMIT = 30.0
OLD, NEW = {"old": b"1" * 32}, {"new": b"2" * 32}


async def test_a_connection_without_a_transaction_is_refused(postgres_url: str, sqlite_url: str) -> None:
    async with Engine(postgres_url, migrate=True) as engine:
        bare = await asyncpg.connect(address(postgres_url))
        with pytest.raises(InvalidInput, match="Begin one first"):
            engine.within(bare)
        await bare.close()
        with psycopg.connect(address(postgres_url), autocommit=True) as connection:
            with pytest.raises(InvalidInput, match="Begin one first"):
                engine.within(connection)
            with connection.transaction():
                assert engine.within(connection).start(bill, 1).created
        assert await engine.count() == {"transactions/bill": {"running": 1}}
    async with Engine(sqlite_url, migrate=True) as engine:
        lone = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        with pytest.raises(InvalidInput, match="BEGIN IMMEDIATE"):
            engine.within(lone).start(bill, 1)
        lone.close()
        assert await engine.count() == {}
        if sys.version_info >= (3, 12):
            lone = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), autocommit=True)
            with pytest.raises(InvalidInput, match="BEGIN IMMEDIATE"):
                engine.within(lone).start(bill, 1)
            lone.close()
            open = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), autocommit=False)
            assert engine.within(open).start(bill, 1).created
            open.commit()
            open.close()
            assert await engine.count() == {"transactions/bill": {"running": 1}}


async def test_what_is_no_connection_to_the_store_is_refused(
    postgres_url: str, sqlite_url: str, tmp_path: Path
) -> None:
    async with Engine(postgres_url, migrate=True) as engine, Engine(sqlite_url, migrate=True) as other:
        for strange in (None, "postgresql://", sqlite3):
            with pytest.raises(InvalidInput):
                engine.within(strange)  # type: ignore[call-overload]
            with pytest.raises(InvalidInput):
                other.within(strange)  # type: ignore[call-overload]
        async with by_asyncpg(postgres_url) as caller:
            with pytest.raises(InvalidInput, match="cannot be used with a SQLite store"):
                other.within(caller.connection)
        for place in (":memory:", str(tmp_path / "mine.db")):
            mine = sqlite3.connect(place)
            with pytest.raises(InvalidInput, match="Connect to the same file"):
                other.within(mine)
            mine.close()
    async with Engine("sqlite://:memory:") as engine, by_sqlite3(sqlite_url) as caller:
        with pytest.raises(InvalidInput, match="belongs to its store alone"):
            engine.within(caller.connection)


async def test_a_database_without_our_schema_is_told_so(postgres_url: str) -> None:
    async with Engine(f"{postgres_url}?schema=mine", migrate=True) as engine, by_psycopg(postgres_url) as caller:
        assert engine.within(caller.connection).start(bill, 1).created
        await caller.run("SET LOCAL search_path = pg_catalog")
        assert engine.within(caller.connection).start(bill, 2).created
        await caller.end(commit=True)
        assert await engine.count() == {"transactions/bill": {"running": 2}}
        await caller.run("DROP SCHEMA mine CASCADE")
        with pytest.raises(StoreTooOld, match="Roll the transaction back"):
            engine.within(caller.connection).start(bill, 3)
        await caller.end(commit=False)


async def test_a_connection_to_another_database_of_the_same_shape_is_refused_and_nothing_is_written(
    postgres_url: str, shared_server: Server
) -> None:
    other_url = shared_server.fresh_database()
    async with Engine(postgres_url, migrate=True) as engine, Engine(other_url, migrate=True) as other:
        async with by_psycopg(other_url) as caller:
            with pytest.raises(InvalidInput, match="another database than the store"):
                engine.within(caller.connection).start(bill, 1)
            assert other.within(caller.connection).start(bill, 2).created
            await caller.end(commit=True)
        async with by_asyncpg(other_url) as caller:
            with pytest.raises(InvalidInput, match="another database than the store"):
                await engine.within(caller.connection).signal("0" * 32, "go")
        assert await engine.count() == {}
        assert await other.count() == {"transactions/bill": {"running": 1}}
    shared_server.execute("postgres", f"DROP DATABASE {other_url.rpartition('/')[2]} WITH (FORCE)")


async def test_of_two_transactions_with_one_key_the_second_waits_and_finds_the_first(postgres_url: str) -> None:
    async with (
        Engine(postgres_url, migrate=True) as engine,
        by_asyncpg(postgres_url) as one,
        by_asyncpg(postgres_url) as two,
    ):
        first = await done(engine.within(one.connection).start(bill.options(key="k"), 1))
        waiting = asyncio.create_task(engine.within(two.connection).start(bill.options(key="k"), 1))
        async with by_asyncpg(postgres_url) as looker:
            while not await looker.connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                pass
        await one.end(commit=True)
        second = await waiting
        assert (second.created, second.id) == (False, first.id)
        with pytest.raises(KeyConflict):
            await engine.within(two.connection).start(bill.options(key="k"), 2)
        await two.end(commit=True)


async def test_rule_6_a_key_in_an_open_transaction_keeps_nobody_waiting_but_who_asks_for_it(postgres_url: str) -> None:
    async with Engine(postgres_url, work=True, workflows=[bill, greet]) as engine, by_asyncpg(postgres_url) as caller:
        first = await done(engine.within(caller.connection).start(bill.options(key="k"), 1))
        await done(engine.within(caller.connection).start(bill.options(key="undone"), 2))
        calls = [(1,), (3,), (2,), (4,), (5,)]
        many = asyncio.create_task(engine.start_many(bill, calls, keys=["k", "other", "undone", None, "more"]))
        beside = await engine.start(bill, 6)
        assert await beside.result(LIMIT) == "bill 6"
        for key, number in (("other", 3), ("more", 5)):
            again = await engine.start(bill.options(key=key), number)
            assert await again.result(LIMIT) == f"bill {number}"
        assert not many.done()
        await caller.end(commit=True)
        handles = await many
        assert [handle.created for handle in handles] == [False, True, False, True, True]
        assert handles[0].id == first.id
        assert [await handle.result(LIMIT) for handle in handles] == [f"bill {number}" for (number,) in calls]


async def test_a_start_that_waited_for_a_transaction_is_the_first_if_that_is_rolled_back(postgres_url: str) -> None:
    async with Engine(postgres_url, work=True, workflows=[bill, greet]) as engine, by_asyncpg(postgres_url) as caller:
        await done(engine.within(caller.connection).start(bill.options(key="k"), 1))
        waiting = asyncio.create_task(engine.start(bill.options(key="k"), 2))
        beside = await engine.start(bill, 6)
        assert await beside.result(LIMIT) == "bill 6"
        assert not waiting.done()
        await caller.end(commit=False)
        assert (await waiting).created
        assert await (await waiting).result(LIMIT) == "bill 2"


async def test_a_signal_waits_for_whoever_holds_the_row_of_its_process(postgres_url: str) -> None:
    async with (
        Engine(postgres_url, migrate=True) as engine,
        by_asyncpg(postgres_url) as one,
        by_asyncpg(postgres_url) as two,
    ):
        handle = await engine.start(greet)
        await engine.within(one.connection).signal(handle.id, "name", "Ann")
        waiting = asyncio.create_task(engine.within(two.connection).signal(handle.id, "name", "Bob"))
        async with by_asyncpg(postgres_url) as looker:
            while not await looker.connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                pass
        await one.end(commit=True)
        assert await waiting is SendVerdict.DELIVERED
        await two.end(commit=True)
        messages = await engine.store.messages([(handle.id_bytes, 0)])
        assert [(message.number, message.payload) for message in messages] == [(1, b'"Ann"'), (2, b'"Bob"')]


async def test_a_snapshot_that_is_too_old_is_told_to_begin_anew(postgres_url: str, sqlite_url: str) -> None:
    async with Engine(postgres_url, migrate=True) as engine, by_asyncpg(postgres_url) as caller:
        await caller.run("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        await caller.run("SELECT 1")
        await engine.start(bill.options(key="k"), 1)
        with pytest.raises(StoreUnavailable, match="run it again"):
            await engine.within(caller.connection).start(bill.options(key="k"), 1)
        await caller.end(commit=False)
    async with Engine(sqlite_url, migrate=True) as engine:
        late = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        late.execute("BEGIN")
        late.execute("SELECT count(*) FROM process").fetchone()
        await engine.start(bill.options(key="k"), 1)
        with pytest.raises(StoreUnavailable):
            engine.within(late).start(bill.options(key="k"), 1)
        late.close()


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_payloads_are_sealed_in_a_transaction_as_outside(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = str(request.getfixturevalue(f"{kind}_url"))
    call = by_psycopg if kind == "postgres" else by_sqlite3
    offload = Folder(tmp_path / "blobs")
    async with Engine(url, work=True, workflows=[bill, greet], codecs=[AesGcm(OLD)], offload=offload) as engine:
        async with call(url) as caller:
            inside = engine.within(caller.connection)
            sealed = inside.start(bill.options(key="k"), 1)
            greeted = inside.start(greet)
            inside.signal(greeted.id, "name", "Ann")
            with pytest.raises(PayloadTooLarge, match="belongs in the offload"):
                inside.signal(greeted.id, "name", "x" * (offload.above + 1))
            await caller.end(commit=True)
        assert await sealed.result(LIMIT) == "bill 1"
        assert await greeted.result(LIMIT) == "hello Ann"
    async with Engine(url, codecs=[AesGcm(NEW | OLD)], offload=offload, migrate=True) as engine, call(url) as caller:
        inside = engine.within(caller.connection)
        assert not inside.start(bill.options(key="k"), 1).created
        with pytest.raises(KeyConflict):
            inside.start(bill.options(key="k"), 2)
        await caller.end(commit=True)
    async with Engine(url, codecs=[], offload=None, migrate=True) as plain:
        rows = await plain.store.search(Search())
        assert len(rows) == 2
        assert all(row.input.startswith(b"\xc1") for row in rows)


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_a_program_without_an_event_loop_starts_in_its_transaction(kind: str, request: pytest.FixtureRequest) -> None:
    url = str(request.getfixturevalue(f"{kind}_url"))
    with BlockingEngine(url, work=True, workflows=[bill, greet]) as engine:
        engine.open()
        results: list[Any] = []

        def buy(number: int) -> None:
            if kind == "postgres":
                connection: Any = psycopg.connect(address(url))
            else:
                connection = sqlite3.connect(url.removeprefix("sqlite:///"))
            handle = engine.within(connection).start(bill.options(key=f"sale/{number}"), number)
            connection.commit()
            connection.close()
            results.append(handle.result(timeout=LIMIT))

        threads = [threading.Thread(target=buy, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == ["bill 0", "bill 1", "bill 2", "bill 3"]


def test_ids_that_many_threads_draw_at_once_are_all_different() -> None:
    machine = Computer()
    drawn: list[bytes] = []

    def draw() -> None:
        drawn.extend(machine.new_id() for _ in range(20_000))

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=draw) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(usual)
    assert len(set(drawn)) == len(drawn) == 80_000


def test_an_engine_that_blocks_refuses_a_connection_that_must_be_awaited(postgres_url: str) -> None:
    with BlockingEngine(postgres_url, migrate=True) as engine:

        async def ask() -> None:
            async with by_asyncpg(postgres_url) as caller:
                with pytest.raises(PerdureError, match="event loop"):
                    engine.within(caller.connection)

        asyncio.run(ask())


async def test_what_fails_half_way_leaves_nothing_of_it(sqlite_url: str) -> None:
    async with Engine(sqlite_url, migrate=True) as engine:
        handle = await engine.start(greet)
        async with by_sqlite3_immediate(sqlite_url) as caller:
            await caller.run(
                "CREATE TRIGGER stop BEFORE UPDATE OF inbox ON process BEGIN SELECT RAISE(ABORT, 'no more'); END"
            )
            with pytest.raises(PerdureError, match="no more"):
                engine.within(caller.connection).signal(handle.id, "name", "Ann")
            await caller.run("DROP TRIGGER stop")
            await caller.end(commit=True)
        assert await engine.store.messages([(handle.id_bytes, 0)]) == []
