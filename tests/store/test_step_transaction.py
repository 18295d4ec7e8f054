"""Step transactions on every store that has them: what is written and the result are there together, or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.clock import Computer
from perdure.errors import StoreUnavailable
from perdure.kernel import message
from perdure.kernel.message import Message, MessageType, SendVerdict
from perdure.kernel.process import Process
from perdure.kernel.soundness import unsound
from perdure.store.step_transaction import StepTransaction, StepTransactions, StepTransactionVerdict
from perdure.store.url import store_for
from perdure.testing.conformance import Ground, Trial
from perdure.testing.conformance.trial import forced, going_on
from tests.runtime.account import Account

KEY = "key"
PATIENCE = 30.0


@pytest.fixture(params=["sqlite_file", "postgres", "pooled"])
def ground(request: pytest.FixtureRequest) -> Ground:
    """Each kind of store in turn."""
    ground: Ground = request.getfixturevalue(request.param)
    return ground


@pytest.fixture
async def trial(ground: Ground) -> AsyncIterator[Trial]:
    """A store, open, and a table ``sale`` beside its own."""
    store = ground.store()
    await store.open()
    account = Account(store.url)
    await account.run("DROP TABLE IF EXISTS sale")
    await account.run("CREATE TABLE sale (n int)")
    yield Trial(ground, store)
    await store.close()


@pytest.fixture
async def step_transactions(trial: Trial) -> AsyncIterator[StepTransactions]:
    made = trial.store.backend.step_transactions()
    assert made is not None
    yield made
    await made.close()


async def sold(trial: Trial) -> int:
    [(count,)] = await Account(trial.store.url).run("SELECT count(*) FROM sale")
    return int(count)


async def sell(made: StepTransaction) -> None:
    done = made.connection.execute("INSERT INTO sale VALUES (1)")
    if asyncio.iscoroutine(done):
        await done


def answer(row: Process, payload: bytes = b'"sold"') -> Message:
    return message.result(KEY, row.id, "sell", "1", b"digest", payload)


async def begun(step_transactions: StepTransactions, row: Process) -> StepTransaction:
    made = await step_transactions.take()
    assert await made.begin(row.id, message.result_id(KEY), PATIENCE)
    return made


async def keep(made: StepTransaction, row: Process) -> Any:
    assert row.owner is not None
    return await made.keep(answer(row), row.owner, row.token)


async def sound(trial: Trial, row: Process) -> None:
    whole = await trial.whole(row.id)
    assert unsound(whole.process, whole.events, whole.messages, await trial.store.now()) == []


async def test_what_was_written_and_the_result_are_there_together(
    trial: Trial, step_transactions: StepTransactions
) -> None:
    row = await trial.owned(await trial.worker())
    await trial.send(row.id)
    made = await begun(step_transactions, row)
    await sell(made)
    assert await sold(trial) == 0
    assert made.mark_returned()
    kept = await keep(made, row)
    await made.end()
    assert (kept.verdict, kept.number, await sold(trial)) == (StepTransactionVerdict.KEPT, 2, 1)
    [_, message] = await trial.store.messages([(row.id, 0)])
    assert message == replace(answer(row), number=2, at=kept.at)
    after = await trial.row(row.id)
    assert (after.inbox, after.owner, after.token, after.version) == (2, row.owner, row.token, row.version)
    await trial.done(going_on(row))
    await sound(trial, row)


async def test_what_is_not_kept_leaves_nothing(trial: Trial, step_transactions: StepTransactions) -> None:
    row = await trial.owned(await trial.worker())
    made = await begun(step_transactions, row)
    await sell(made)
    await made.end()
    assert (await sold(trial), await trial.store.messages([(row.id, 0)])) == (0, [])


@pytest.mark.parametrize("whose", ["owner", "token"])
async def test_law_one_owner_a_step_transaction_in_other_hands_is_refused_with_all_it_wrote(
    trial: Trial, step_transactions: StepTransactions, whose: str
) -> None:
    row = await trial.owned(await trial.worker())
    made = await begun(step_transactions, row)
    await sell(made)
    late = replace(row, owner=bytes(16)) if whose == "owner" else replace(row, token=row.token - 1)
    assert made.mark_returned()
    assert (await keep(made, late)).verdict is StepTransactionVerdict.REFUSED
    await made.end()
    assert (await sold(trial), await trial.store.messages([(row.id, 0)])) == (0, [])


async def test_law_one_owner_a_takeover_while_the_step_runs_refuses_it(
    trial: Trial, step_transactions: StepTransactions
) -> None:
    if step_transactions.blocking:
        pytest.skip("nobody else can write to a SQLite file meanwhile")
    row = await trial.owned(await trial.worker())
    made = await begun(step_transactions, row)
    await sell(made)
    await trial.done(forced(row))
    assert made.mark_returned()
    assert (await keep(made, row)).verdict is StepTransactionVerdict.REFUSED
    await made.end()
    assert await sold(trial) == 0


async def test_law_result_once_a_result_that_is_there_is_known_before_anything_is_written(
    trial: Trial, step_transactions: StepTransactions
) -> None:
    row = await trial.owned(await trial.worker())
    made = await begun(step_transactions, row)
    await sell(made)
    assert (await keep(made, row)).verdict is StepTransactionVerdict.KEPT
    await made.end()
    again = await step_transactions.take()
    assert not await again.begin(row.id, message.result_id(KEY), PATIENCE)
    await again.end()
    assert await sold(trial) == 1


async def test_law_result_once_of_two_attempts_at_once_one_is_kept(
    trial: Trial, step_transactions: StepTransactions
) -> None:
    if step_transactions.blocking:
        pytest.skip("there is one writer")
    row = await trial.owned(await trial.worker())
    one, other = await begun(step_transactions, row), await begun(step_transactions, row)
    await sell(one)
    await sell(other)
    answers = await asyncio.gather(keep(one, row), keep(other, row))
    await asyncio.gather(one.end(), other.end())
    assert sorted(found.verdict for found in answers) == [StepTransactionVerdict.KEPT, StepTransactionVerdict.KNOWN]
    assert await sold(trial) == 1
    assert len(await trial.store.messages([(row.id, 0)])) == 1


async def test_what_was_abandoned_is_rolled_back_and_what_is_sealed_is_not_abandoned(
    trial: Trial, step_transactions: StepTransactions
) -> None:
    row = await trial.owned(await trial.worker())
    made = await begun(step_transactions, row)
    await sell(made)
    assert made.abandon()
    assert made.abandon(), "twice is once"
    assert not made.mark_returned()
    await made.end()
    assert await sold(trial) == 0
    other = await begun(step_transactions, row)
    await sell(other)
    assert other.mark_returned()
    assert not other.abandon()
    assert (await keep(other, row)).verdict is StepTransactionVerdict.KEPT
    await other.end()
    assert await sold(trial) == 1


async def test_the_connection_is_of_no_use_to_whoever_keeps_it(
    trial: Trial, step_transactions: StepTransactions
) -> None:
    row = await trial.owned(await trial.worker())
    made = await begun(step_transactions, row)
    connection = made.connection
    await made.end()
    with pytest.raises(Exception, match=r"closed|released"):
        await sell(type("Stale", (), {"connection": connection})())  # type: ignore[arg-type]


async def test_many_take_turns_and_all_are_kept(trial: Trial, step_transactions: StepTransactions) -> None:
    worker = await trial.worker()
    rows = [await trial.owned(worker) for _ in range(20)]

    async def one(row: Process) -> StepTransactionVerdict:
        made = await begun(step_transactions, row)
        await sell(made)
        made.mark_returned()
        kept: StepTransactionVerdict = (await keep(made, row)).verdict
        await made.end()
        return kept

    if step_transactions.blocking:
        assert {await one(row) for row in rows} == {StepTransactionVerdict.KEPT}
    else:
        assert set(await asyncio.gather(*map(one, rows))) == {StepTransactionVerdict.KEPT}
    assert await sold(trial) == 20


async def test_a_store_that_cannot_be_reached_says_so_before_anything_begins(trial: Trial) -> None:
    url = trial.store.url
    away = f"{url}.gone" if url.startswith("sqlite") else "postgresql://perdure@127.0.0.1:1/none"
    step_transactions = store_for(away, Computer()).backend.step_transactions()
    assert step_transactions is not None
    with pytest.raises(StoreUnavailable):
        await (await step_transactions.take()).begin(bytes(16), bytes(16), PATIENCE)
    await step_transactions.close()


async def test_a_result_is_told_apart_from_the_answer_of_a_child(trial: Trial) -> None:
    row = await trial.owned(await trial.worker())
    assert message.origin_of(answer(row)) == message.Origin("step", "1", b"digest".hex())
    child = Message(trial.ids.new_id(), row.id, MessageType.RESULT, "order", b"1")
    assert message.origin_of(child) is None
    assert message.origin_of(replace(child, sender=b'{"who":"ann"}')) is None
    assert message.origin_of(replace(child, sender=b"no JSON")) is None
    [told] = await trial.store.send([child])
    assert told.verdict is SendVerdict.DELIVERED
