"""Rule 5 for transactions: a line that breaks around a step's COMMIT leaves a doubt, settled under the lock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from perdure import limits
from perdure.clock import Computer
from perdure.errors import Permanent, StoreUnavailable
from perdure.kernel import message
from perdure.kernel.message import Message
from perdure.kernel.process import Process
from perdure.store.postgres.step_transaction import PostgresStepTransaction, PostgresStepTransactions
from perdure.store.step_transaction import StepTransactionAnswer, StepTransactionVerdict
from perdure.testing.conformance import Trial
from tests.runtime.account import Account
from tests.store.postgres.proxy import Fault, Proxy

KEY = "key"


@pytest.fixture
async def account(trial: Trial) -> Account:
    """A table beside the store's own."""
    account = Account(trial.store.url)
    await account.run("DROP TABLE IF EXISTS sale")
    await account.run("CREATE TABLE sale (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    return account


@pytest.fixture
async def far(proxy: Proxy, account: Account) -> AsyncIterator[PostgresStepTransactions]:
    """Step transactions by way of a line that can be cut."""
    step_transactions = PostgresStepTransactions(proxy.url, Computer())
    yield step_transactions
    await step_transactions.close()


async def begun(
    step_transactions: PostgresStepTransactions, row: Process, patience: float = 30.0
) -> PostgresStepTransaction:
    made = await step_transactions.take()
    assert await made.begin(row.id, message.result_id(KEY), patience)
    await made.connection.execute("INSERT INTO sale VALUES (1)")
    assert made.mark_returned()
    return made


def answer(row: Process) -> Message:
    return message.result(KEY, row.id, "sell", "1", b"digest", b"1")


async def keep(made: PostgresStepTransaction, row: Process) -> StepTransactionAnswer:
    assert row.owner is not None
    try:
        return await made.keep(answer(row), row.owner, row.token)
    finally:
        await made.end()


async def sold(account: Account) -> list[tuple[int]]:
    return await account.run("SELECT n FROM sale")


async def test_rule_05_a_commit_whose_answer_was_lost_is_found_to_be_done(
    trial: Trial, far: PostgresStepTransactions, proxy: Proxy, account: Account
) -> None:
    row = await trial.owned(await trial.worker())
    made = await begun(far, row)
    proxy.fault, proxy.mark = Fault.CUT_AFTER, b"COMMIT;"
    assert (await keep(made, row)).verdict is StepTransactionVerdict.KNOWN
    assert await sold(account) == [(1,)]
    assert len(await trial.store.messages([(row.id, 0)])) == 1


async def test_rule_05_a_commit_that_never_arrived_is_found_to_be_undone(
    trial: Trial, far: PostgresStepTransactions, proxy: Proxy, account: Account
) -> None:
    row = await trial.owned(await trial.worker())
    made = await begun(far, row)
    proxy.fault, proxy.mark = Fault.CUT_BEFORE, b"COMMIT;"
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await keep(made, row)
    assert (await sold(account), await trial.store.messages([(row.id, 0)])) == ([], [])
    assert (await keep(await begun(far, row), row)).verdict is StepTransactionVerdict.KEPT


async def test_rule_07_a_server_that_is_silent_after_the_commit_is_left_and_asked_anew(
    trial: Trial, far: PostgresStepTransactions, proxy: Proxy, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SILENT_CONNECTION_SECONDS", 0.5)
    row = await trial.owned(await trial.worker())
    made = await begun(far, row)
    proxy.fault, proxy.mark = Fault.SILENT, b"COMMIT;"
    assert (await keep(made, row)).verdict is StepTransactionVerdict.KNOWN
    assert await sold(account) == [(1,)]


async def test_as_many_as_there_are_connections_may_be_in_doubt_at_once(
    trial: Trial, far: PostgresStepTransactions, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await trial.worker()
    rows = [await trial.owned(worker) for _ in range(limits.TRANSACTION_CONNECTIONS)]

    async def cut(made: PostgresStepTransaction) -> None:
        made.connection.terminate()
        raise ConnectionError("cut")

    monkeypatch.setattr(PostgresStepTransaction, "_commit", cut)
    made = [await far.take() for _ in rows]
    for one, row in zip(made, rows, strict=True):
        assert await one.begin(row.id, message.result_id(KEY), 30.0)
        assert one.mark_returned()
    async with asyncio.timeout(30):
        found = await asyncio.gather(*(keep(*pair) for pair in zip(made, rows, strict=True)), return_exceptions=True)
    assert {str(error) for error in found} == {"cut"}
    assert await sold(account) == []


async def test_what_the_commit_itself_refuses_leaves_nothing(
    trial: Trial, far: PostgresStepTransactions, account: Account
) -> None:
    await account.run("INSERT INTO sale VALUES (1)")
    row = await trial.owned(await trial.worker())
    with pytest.raises(asyncpg.UniqueViolationError):
        await keep(await begun(far, row), row)
    assert (await sold(account), await trial.store.messages([(row.id, 0)])) == ([(1,)], [])


async def test_a_step_that_ends_its_transaction_itself_has_failed_for_good(
    trial: Trial, far: PostgresStepTransactions, account: Account
) -> None:
    row = await trial.owned(await trial.worker())
    made = await begun(far, row)
    await made.connection.execute("COMMIT")
    with pytest.raises(Permanent, match="return to commit"):
        await keep(made, row)
    assert await trial.store.messages([(row.id, 0)]) == []


async def test_an_error_of_the_database_that_the_step_has_caught_fails_it_all_the_same(
    trial: Trial, far: PostgresStepTransactions, account: Account
) -> None:
    row = await trial.owned(await trial.worker())
    made = await begun(far, row)
    with pytest.raises(asyncpg.UndefinedTableError):
        await made.connection.execute("INSERT INTO nowhere VALUES (1)")
    with pytest.raises(asyncpg.InFailedSQLTransactionError):
        await keep(made, row)
    assert (await sold(account), await trial.store.messages([(row.id, 0)])) == ([], [])


async def test_savepoints_and_a_stricter_isolation_are_the_step_s_own(
    trial: Trial, far: PostgresStepTransactions, account: Account
) -> None:
    row = await trial.owned(await trial.worker())
    made = await far.take()
    assert await made.begin(row.id, message.result_id(KEY), 30.0)
    await made.connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    async with made.connection.transaction():
        await made.connection.execute("INSERT INTO sale VALUES (1)")
    with pytest.raises(asyncpg.UndefinedTableError):
        async with made.connection.transaction():
            await made.connection.execute("INSERT INTO nowhere VALUES (1)")
    await trial.send(row.id)  # the row has changed since the step began to read: it must run again
    assert made.mark_returned()
    with pytest.raises(asyncpg.SerializationError):
        await keep(made, row)
    again = await begun(far, row)
    assert (await keep(again, row)).verdict is StepTransactionVerdict.KEPT
    assert await sold(account) == [(1,)]


async def test_a_worker_that_is_silent_in_its_transaction_loses_its_session(
    trial: Trial, far: PostgresStepTransactions, account: Account
) -> None:
    row = await trial.owned(await trial.worker())
    made = await begun(far, row, patience=0.2)
    async with asyncio.timeout(30):
        while await account.run("SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"):
            await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="the connection was lost"):
        await keep(made, row)
    assert (await keep(await begun(far, row), row)).verdict is StepTransactionVerdict.KEPT
    assert await sold(account) == [(1,)]


async def test_no_more_connections_are_lent_than_there_may_be(trial: Trial, far: PostgresStepTransactions) -> None:
    lent = [await far.take() for _ in range(limits.TRANSACTION_CONNECTIONS)]
    waiting = asyncio.ensure_future(far.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    await lent.pop().end()
    await (await waiting).end()
    for one in lent:
        await one.end()
