"""What claimed rows hold is read in portions: no statement is so long that its connection is given up meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from perdure import limits
from perdure.errors import StoreUnavailable
from perdure.kernel.claim import ClaimAnswer
from perdure.kernel.commit import Verdict
from perdure.store.postgres import claimed
from perdure.store.postgres.store import PostgresStore
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import released
from tests.store.ground_postgres import PostgresGround

EVENTS = (1, 2, 9, 1, 3)
LETTERS = 3
TABLE = "perdure.event"


async def due_with_histories(trial: Trial) -> None:
    """Some processes that are due, with so many events and some unheard messages each."""
    worker = await trial.worker()
    for steps in EVENTS:
        row = await trial.owned(worker)
        [answer] = await trial.store.commit([released(row, await trial.time.now(), steps=steps)])
        assert answer.verdict is Verdict.APPLIED
        for number in range(LETTERS):
            await trial.send(row.id, payload=f'"{number:02}"'.encode())


def noted(store: Any, patch: pytest.MonkeyPatch) -> list[tuple[str, Sequence[Any]]]:
    """The named statements that the store sends on the connection for writes, from now on."""
    sent: list[tuple[str, Sequence[Any]]] = []
    assert isinstance(store, PostgresStore)
    rows = store._writes.rows

    async def noting(name: str, *given: Any, **how: Any) -> Any:
        sent.append((name, given))
        return await rows(name, *given, **how)

    patch.setattr(store._writes, "rows", noting)
    return sent


def held(answer: ClaimAnswer) -> list[tuple[list[int], list[int]]]:
    """The numbers of the events and of the messages of each claimed process, in the order of the ids."""
    taken = sorted(answer.claimed, key=lambda one: one.process.id)
    return [([one.number for one in each.events], [one.number for one in each.messages]) for each in taken]


def of(sent: Sequence[tuple[str, Sequence[Any]]], name: str) -> list[Sequence[Any]]:
    """What the statements of one name were given."""
    return [given for known, given in sent if known == name]


async def test_an_ordinary_claim_reads_all_histories_in_one_statement_and_all_messages_in_another(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    await due_with_histories(trial)
    sent = noted(trial.store, monkeypatch)
    answer = await trial.claim(await trial.worker())
    assert sorted(held(answer)) == sorted((list(range(1, one + 1)), [1, 2, 3]) for one in EVENTS)
    assert [name for name, _ in sent if name.startswith("claim")] == ["claim", "claimed_events", "claimed_messages"]


async def test_no_statement_of_a_claim_reads_more_events_than_the_bound_nor_of_one_long_history(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimed, "EVENTS_AT_ONCE", 4)
    await due_with_histories(trial)
    sent = noted(trial.store, monkeypatch)
    answer = await trial.claim(await trial.worker())
    assert sorted(held(answer)) == sorted((list(range(1, one + 1)), [1, 2, 3]) for one in EVENTS)
    counts = [
        sum(last - first + 1 for first, last in zip(*one[2:4], strict=True)) for one in of(sent, "claimed_events")
    ]
    assert (sum(counts), max(counts)) == (sum(EVENTS), 4)
    assert len(of(sent, "claimed_messages")) > 1


async def test_messages_of_a_claim_that_are_read_in_portions_have_the_bound_of_one_batch_together(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    await due_with_histories(trial)
    monkeypatch.setattr(claimed, "EVENTS_AT_ONCE", 4)
    monkeypatch.setattr(limits, "HEARD_BYTES", 4 * 4)
    answer = await trial.claim(await trial.worker())
    assert sum(len(one.messages) for one in answer.claimed) == 4
    assert [one.cut for one in answer.claimed] == [len(one.messages) < LETTERS for one in answer.claimed]
    assert {one.process.inbox for one in answer.claimed} == {LETTERS}


async def test_a_reading_that_lasts_too_long_says_that_its_claim_was_applied(
    postgres: PostgresGround, trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    await due_with_histories(trial)
    worker = await trial.worker()
    assert isinstance(trial.store, PostgresStore)
    async with postgres.outside.transaction():
        await postgres.outside.execute(f"LOCK TABLE {TABLE}")
        claim = asyncio.create_task(trial.claim(worker))
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::regclass"
        async with asyncio.timeout(20):
            while not await postgres.outside.fetchval(waiting, TABLE):
                await asyncio.sleep(0)
        monkeypatch.setattr(trial.store._writes, "patience", 0.0)  # as if it had waited for so long
        assert trial.store._writes._watch is not None
        trial.store._writes._watch.cancel()
        trial.store._writes._look()
        with pytest.raises(StoreUnavailable) as caught:
            await claim
        monkeypatch.undo()
    assert caught.value.unread
    assert {row.owner for row in await trial.stored()} == {worker}


async def test_a_claim_that_was_not_applied_does_not_say_so(trial: Trial) -> None:
    worker = await trial.worker()
    assert isinstance(trial.store, PostgresStore)
    await due_with_histories(trial)
    trial.store._writes._connection.terminate()  # type: ignore[union-attr]
    trial.store._writes._not_before = 0.0

    async def refused(*_: Any) -> Any:
        raise OSError("no route to host")

    trial.store._writes._connected = refused  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable) as caught:
        await trial.claim(worker)
    assert not caught.value.unread
