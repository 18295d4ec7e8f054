"""Batches on SQLite: as usual in a few calls, otherwise looked at first; large ones in parts; the same in the end."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import Any

import pytest

from perdure.kernel.commit import Start, StartVerdict, Verdict
from perdure.kernel.message import SendVerdict
from perdure.limits import BATCH_BYTES
from perdure.store.base import Overdue, Pruned, Search
from perdure.store.sqlite import upkeep
from perdure.store.sqlite.connection import Connection
from perdure.store.sqlite.store import SqliteStore
from perdure.store.sqlite.writer import WARY_BATCHES
from perdure.testing.clock import MovableMachine
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import LEASE, finished, forced, going_on, only


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each named query was called."""
    counted: Counter[str] = Counter()
    for method in ("one", "run", "write", "ask"):
        plain = getattr(Connection, method)

        def counting(self: Connection, name: str, /, *given: Any, _plain: Any = plain, **named: Any) -> Any:
            counted[name] += 1
            return _plain(self, name, *given, **named)

        monkeypatch.setattr(Connection, method, counting)
    return counted


async def test_a_batch_as_usual_needs_three_statements_whatever_its_size(trial: Trial, calls: Counter[str]) -> None:
    worker = await trial.worker()
    for size in (1, 10, 1000):
        starts = [Start(trial.process(owner=worker, token=1, key=f"{size}/{n}"), (), LEASE) for n in range(size)]
        calls.clear()
        await trial.store.start(starts)
        assert calls == {"tick_at_once": 1, "insert_processes": 1}
        rows = [await trial.row(starts[0].process.id)] if size == 1 else (await trial.stored())[:size]
        calls.clear()
        await trial.store.commit([finished(row) for row in rows])
        assert calls == {"tick_at_once": 1, "update_processes": 1, "insert_events": 1}


async def test_after_something_unusual_the_next_batches_look_first(trial: Trial, calls: Counter[str]) -> None:
    worker = await trial.worker()
    row = await trial.owned(worker)
    await trial.done(forced(row))
    assert (await trial.commit(going_on(row))).verdict is Verdict.REFUSED
    calls.clear()
    for _ in range(WARY_BATCHES + 2):
        await trial.commit(going_on(await trial.owned(worker)))
    assert calls["look_at_fences"] < WARY_BATCHES
    assert calls["update_processes"] == WARY_BATCHES + 2


async def test_each_of_an_unusual_batch_is_answered_as_if_alone(trial: Trial) -> None:
    worker = await trial.worker()
    rows = [await trial.owned(worker) for _ in range(4)]
    await trial.send(rows[1].id)
    await trial.done(forced(rows[2]))
    answers = await trial.store.commit([finished(row) for row in rows])
    assert [answer.verdict for answer in answers] == ["applied", "read first", "refused", "applied"]
    ended = trial.process(key="order/1")
    starts = [Start(ended), Start(trial.process()), Start(ended), Start(trial.process(key="order/1", input=b"[2]"))]
    answered = await trial.store.start(starts)
    assert [answer.verdict for answer in answered] == ["created", "created", "created", "conflict"]


async def test_two_commits_of_one_process_in_one_batch_are_judged_one_after_the_other(trial: Trial) -> None:
    row = await trial.owned(await trial.worker())
    first = going_on(row)
    answers = await trial.store.commit([first, finished(row), going_on(first.after)])
    assert [answer.verdict for answer in answers] == ["applied", "refused", "applied"]
    assert (await trial.row(row.id)).version == 2


async def test_more_than_one_statement_holds_is_written_in_parts(trial: Trial) -> None:
    row = await trial.owned(await trial.worker())
    await trial.done(going_on(row, steps=2500))
    assert len(await trial.store.history(row.id, 1, limit=10_000)) == 2500
    answers = await trial.store.send([trial.signal(row.id) for _ in range(2100)])
    assert {answer.verdict for answer in answers} == {SendVerdict.DELIVERED}
    assert len(await trial.store.messages([(row.id, 0)])) == 2100


async def test_a_claim_is_bounded_in_bytes_and_takes_at_least_one(trial: Trial) -> None:
    worker = await trial.worker()
    large = b'"' + b"x" * (BATCH_BYTES // 3) + b'"'
    await trial.store.start([Start(trial.process(input=large)) for _ in range(4)])
    assert len((await trial.claim(worker)).claimed) == 2
    assert len((await trial.claim(worker)).claimed) == 2
    await trial.store.start([Start(trial.process(input=large * 4))])
    assert only((await trial.claim(worker)).claimed).process.input == large * 4


async def test_long_histories_are_pruned_few_at_a_time(trial: Trial, store: SqliteStore) -> None:
    worker = await trial.worker()
    for steps in (5000, 10, 10, 2000, 2000):
        row = await trial.owned(worker)
        await trial.done(finished(await trial.done(going_on(row, steps=steps))))
    await trial.time.advance(1)
    groups = await store._reader.run(lambda connection: upkeep.finished(connection, 1 << 62, 100, 0))
    assert [len(group.ids) for group in groups] == [1, 3, 1]
    assert await store.prune(0, 0, 100) == Pruned(5, 0)


FORMER = """
    WITH RECURSIVE n (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM n WHERE number < :events)
    INSERT INTO event (process, run, number, turn, type, at, place, name, token, version)
    SELECT process, :run, n.number, turn, type, at, place, name, token, version
    FROM n, event WHERE run = 4 AND event.number = 1
"""
"""So many events of a former run."""


async def test_the_former_runs_of_a_process_with_very_many_events_are_pruned_first_in_portions(
    trial: Trial, store: SqliteStore, raw: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = await trial.done(finished(await trial.owned(await trial.worker(), key="order/1")))
    raw.execute("UPDATE event SET run = 4")
    raw.execute("UPDATE process SET run = 4")
    for run, events in ((1, 2 * upkeep.EVENTS_PRUNED_AT_ONCE), (2, upkeep.EVENTS_PRUNED_AT_ONCE), (3, 5)):
        raw.execute(FORMER, {"run": run, "events": events})
    await trial.time.advance(1)
    before = await trial.row(row.id)

    def dies(*_: Any) -> int:
        raise RuntimeError("the pruning dies in its last transaction")

    with monkeypatch.context() as broken:
        broken.setattr(upkeep, "remove", dies)
        with pytest.raises(RuntimeError, match="dies"):
            await store.prune(0, 10**12, 100)
    left = dict(raw.execute("SELECT run, count(*) FROM event GROUP BY run").fetchall())
    assert (left.keys(), left[3], await trial.row(row.id)) == ({3, 4}, 5, before)
    assert await store.prune(0, 10**12, 100) == Pruned(1, 0)
    assert raw.execute("SELECT count(*) FROM event").fetchone() == (0,)


async def test_a_key_kept_from_a_pruned_process_is_seen_by_a_start_that_does_not_look(
    trial: Trial, calls: Counter[str]
) -> None:
    worker = await trial.worker()
    row = await trial.done(finished(await trial.owned(worker, key="order/1")))
    await trial.time.advance(1)
    await trial.store.prune(0, 10**12, 10)
    calls.clear()
    [answer] = await trial.store.start([Start(trial.process(key="order/1"))])
    assert (answer.verdict, answer.id) == (StartVerdict.EXISTS, row.id)
    assert calls["insert_processes"] == calls["look_at_starts"] == 1
    assert await trial.store.search(Search()) == []


async def test_a_look_for_what_is_overdue_writes_nothing(
    store: SqliteStore, machine: MovableMachine, raw: sqlite3.Connection
) -> None:
    before = raw.execute("SELECT at FROM clock").fetchone()
    machine.advance(60)
    assert await store.search(Search(overdue=Overdue.EXPIRED)) == []
    assert raw.execute("SELECT at FROM clock").fetchone() == before
