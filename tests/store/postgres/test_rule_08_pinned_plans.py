"""Rule 8: batch statements keep their plans on a growing table that was never analysed, and a claim its limit."""

from __future__ import annotations

import re

import pytest

from perdure.clock import SECOND
from perdure.kernel.commit import Commit, Start, Verdict
from perdure.kernel.process import Process
from perdure.kernel.worker import COUNTED, Backlog
from perdure.store.base import Overdue, Search
from perdure.store.postgres.schema import queries
from perdure.testing.conformance import Trial
from perdure.testing.conformance.bringing import bringing
from perdure.testing.conformance.trial import LEASE, finished, going_on, released
from tests.store.ground_postgres import ENDED_WORKERS, TRUNCATE, PostgresGround

READS = """
    SELECT (SELECT sum(idx_tup_read)::float FROM pg_stat_user_indexes WHERE schemaname = 'perdure'),
           (SELECT sum(seq_tup_read)::float FROM pg_stat_user_tables WHERE schemaname = 'perdure'),
           (SELECT (sum(n_tup_ins) + sum(n_tup_upd))::float FROM pg_stat_user_tables WHERE schemaname = 'perdure')
"""
MOST_READS = 9
"""Index entries read for each row written, dead ones included; a plan that reads whole tables needs hundreds."""

FEWER_READS = 5.2
"""The same, where batches are large: a plan that reads the process table first, and the batch for each row, has 6."""


LONG = 10 * 365 * 24 * 3600 * SECOND
"""No row is as old as this, whether the store tells the real time or that of a test before."""

SOUGHT = re.compile(r"\b(FROM|JOIN|UPDATE|USING) \"perdure\"\.(process|event|message|worker)\b")

END_OTHERS = """
    SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


async def begin(ground: PostgresGround) -> None:
    """End the sessions of the tests before, which are kept: only an end makes a session tell what it has counted."""
    await ground.outside.execute(END_OTHERS)


async def counters(ground: PostgresGround) -> tuple[float, float, float]:
    """Index entries read, rows read from end to end, rows written; the sessions measured have ended and told all."""
    if await ground.outside.fetchval("SELECT to_regproc('pg_stat_force_next_flush') IS NOT NULL"):
        await ground.outside.execute("SELECT pg_stat_force_next_flush()")
    await ground.outside.execute("SELECT pg_stat_clear_snapshot()")
    entries, rows, written = (await ground.outside.fetch(READS))[0]
    return entries, rows, written


async def work(trial: Trial, batches: int, size: int) -> None:
    """The whole life of ``size`` processes in each batch: with messages sent and brought, beats, a claim, an end."""
    worker = await trial.worker()
    for _ in range(batches):
        starts = [
            Start(trial.process(owner=worker, token=1, key=trial.ids.new_id().hex()), lease=LEASE) for _ in range(size)
        ]
        await trial.store.start(starts)
        rows = [start.process for start in starts]
        await trial.store.send([trial.signal(row.id, key="approval") for row in rows])
        rows = await applied(trial, [going_on(row, seen=1, consumed=((1, 1),)) for row in rows])
        rows = await applied(trial, [bringing(trial, row, key="bill") for row in rows])
        await trial.beat(worker, *rows)
        await applied(trial, [released(row, 0) for row in rows])
        claimed = (await trial.claim(worker, limit=size)).claimed
        assert {(len(one.events), len(one.messages)) for one in claimed} == {(3, 1)}
        await applied(trial, [finished(one.process) for one in claimed])


LYING = """
    INSERT INTO perdure.process (id, created_at, changed_at, due_at, status, run, version, token, inbox, seen, events,
                                 deaths, alone_deaths, priority, reminder, kind, code, key, input)
    SELECT gen_random_uuid(), t, t, CASE WHEN {waits} THEN t + interval '1 hour' END,
           (CASE WHEN {waits} THEN 'running' ELSE 'completed' END)::perdure.status, 1, 0, 0, 0, 0, 0, 0, 0, 4,
           {waits} AND n % 2 = 0, 'order', '1', '{waits}' || n, '1'
    FROM generate_series(1, 10000) AS s(n), (SELECT perdure.now()) AS k(t)
"""
LYING_THERE = (
    LYING.format(waits="true"),
    "ANALYZE perdure.process",  # whoever plans anew from now on believes that none has ended
    LYING.format(waits="false"),
    """
    INSERT INTO perdure.message (process, id, at, number, consumed_run, consumed_by, type, name, payload)
    SELECT id, gen_random_uuid(), created_at, 1, 1, 1, 1, 'approve', '1' FROM perdure.process
    """,
    """
    INSERT INTO perdure.key_kept (kind, key, process, digest, due_at)
    SELECT 'order', n, gen_random_uuid(), '', perdure.now() + interval '1 day'
    FROM generate_series(30000, 40000) AS s(n)
    """,
)
"""Processes that wait for an hour or for ever and others that have ended, letters, and kept keys."""

FEW_ROWS = 500


async def look(trial: Trial, worker: bytes) -> None:
    """Ask what each worker asks again and again, as nothing is due."""
    assert len(await trial.store.workers()) == len(await trial.store.workers(ids=[worker])) == 1
    assert (await trial.claim(worker)).claimed == ()
    await trial.beat(worker)
    for what in Overdue:
        if what is not Overdue.INBOX:  # only while a worker of the first release lives
            assert (await trial.store.search(Search(overdue=what, owner=worker))) == []
    await trial.store.records(Backlog)  # counted up to a bound
    assert (await trial.store.count(Search(ids=()))) == []
    assert (await trial.store.prune(LONG, LONG, 100)).processes == 0


@pytest.mark.parametrize("analysed", [False, True])
async def test_what_workers_ask_again_and_again_reads_few_rows_however_many_lie_there(
    postgres: PostgresGround, analysed: bool
) -> None:
    await begin(postgres)
    store = postgres.store()
    await store.open()
    trial = Trial(postgres, store)
    worker = await trial.worker()
    if analysed:  # as autovacuum does at a moment of its own: whoever plans now believes that each table is one page
        await postgres.outside.execute("VACUUM ANALYZE")
    for _ in range(7):  # plans are made while the tables are tiny
        await look(trial, worker)
    for statement in LYING_THERE:
        await postgres.outside.execute(statement)
    await postgres.outside.execute(ENDED_WORKERS, 5_000)
    before = await counters(postgres)
    await look(trial, worker)
    await store.close()
    entries, rows, _ = (after - once for after, once in zip(await counters(postgres), before, strict=True))
    assert rows < FEW_ROWS, "a look scanned a table from end to end"
    assert entries < COUNTED + FEW_ROWS, "a look read through an index"


async def applied(trial: Trial, commits: list[Commit]) -> list[Process]:
    """Write commits, all of which must be applied; the answer is the rows as their owner knows them."""
    assert {answer.verdict for answer in await trial.store.commit(commits)} == {Verdict.APPLIED}
    return [commit.after for commit in commits]


async def test_no_batch_statement_reads_a_whole_table_however_it_grows(postgres: PostgresGround) -> None:
    await begin(postgres)
    store = postgres.store()
    await store.open()
    before = await counters(postgres)
    await work(Trial(postgres, store), 8, 400)
    await store.close()
    entries, rows, written = (after - once for after, once in zip(await counters(postgres), before, strict=True))
    assert rows < 100, "a batch statement scanned a table from end to end"
    assert entries < MOST_READS * written


@pytest.mark.parametrize("rows", [0, *(pytest.param(rows, marks=pytest.mark.long) for rows in (1, 3, 60))])
async def test_plans_made_while_the_tables_were_tiny_stay_right_when_they_are_not(
    postgres: PostgresGround, rows: int
) -> None:
    await begin(postgres)
    store = postgres.store()
    await store.open()
    trial = Trial(postgres, store)
    await work(trial, 1, rows or 1)
    if not rows:
        await postgres.outside.execute(TRUNCATE)
    await postgres.outside.execute("VACUUM ANALYZE")
    await work(trial, 1, 2)
    before = await counters(postgres)
    await work(trial, 6, 400)
    await store.close()
    entries, scanned, written = (after - once for after, once in zip(await counters(postgres), before, strict=True))
    assert scanned < 100
    assert entries < FEWER_READS * written


async def test_settings_of_the_batch_functions_do_not_leak_into_the_session(
    postgres: PostgresGround, trial: Trial
) -> None:
    names = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan", "plan_cache_mode", "jit")
    functions = await postgres.outside.fetch(
        "SELECT proname, array_to_string(proconfig, ' ') FROM pg_proc "
        "WHERE pronamespace = 'perdure'::regnamespace AND proname = ANY ($1)",
        [
            "start",
            "commit",
            "commit_alone",
            "commit_bringing",
            "commit_bringing_alone",
            "commit_outward_alone",
            "send_within",
            "send_alone_within",
            "claim",
            "claim_among",
            "claim_resting",
            "claim_due",
            "claim_suspects",
            "owners",
            "beat_telling_skipped",
            "search_by_id",
            "prune_portion",
        ],
    )
    assert len(functions) == 17
    for name, settings in functions:
        assert all(f"{setting}=" in settings for setting in names), name
    async with postgres.outside.transaction():
        before = [await postgres.outside.fetchval(f"SHOW {name}") for name in names]
        await postgres.outside.fetch("SELECT * FROM perdure.prune_portion(0, 0, 1, 1)")
        assert [await postgres.outside.fetchval(f"SHOW {name}") for name in names] == before


UNPINNED = """
    SELECT proname, prosrc FROM pg_proc
    WHERE pronamespace = 'perdure'::regnamespace AND NOT coalesce('enable_seqscan=off' = ANY (proconfig), false)
"""
CALLED_BY_PINNED = {"move_letters", "offer_messages", "start_receiving"}
READ_WHAT_IS_ASKED = {"search_page", "counts", "fill_stream"}
"""Their conditions are built, or they read all there is: the planner may choose."""


async def test_no_function_leaves_the_plan_of_a_row_sought_by_its_key_to_the_moment(postgres: PostgresGround) -> None:
    found = {name for name, body in await postgres.outside.fetch(UNPINNED) if SOUGHT.search(body)}
    assert found == CALLED_BY_PINNED | READ_WHAT_IS_ASKED


def test_no_statement_of_the_store_seeks_a_row_outside_a_function() -> None:
    sought = {name for name, sql in queries("perdure").items() if SOUGHT.search(sql)}
    assert sought == {"lock_for_result"}  # asked once, after an unknown end


@pytest.mark.parametrize("limit", [1, 7, 100])
async def test_a_claim_never_takes_more_than_its_limit(postgres: PostgresGround, trial: Trial, limit: int) -> None:
    worker = await trial.worker()
    kinds = [f"kind {number}" for number in range(5)]
    starts = [Start(trial.process(kind=kind, priority=priority)) for kind in kinds for priority in range(10)]
    starts += [Start(trial.process(kind="kind 0")) for _ in range(200)]
    await trial.store.start(starts)
    hosted = tuple((kind, "1") for kind in kinds)
    taken = 0
    while answer := (await trial.claim(worker, limit=limit, hosted=hosted)).claimed:
        assert len(answer) <= limit
        assert len(answer) == limit or taken + len(answer) == len(starts)
        taken += len(answer)
    assert taken == len(starts)
