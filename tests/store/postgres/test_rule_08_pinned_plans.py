"""Rule 8: batch statements keep their plans on a growing table that was never analysed, and a claim its limit."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from perdure.kernel.commit import Start
from perdure.store.base import Store
from perdure.testing.clock import MovableMachine
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import LEASE, finished, going_on
from tests.store.ground_postgres import PostgresGround

SCANS = """
    SELECT relname, seq_tup_read FROM pg_stat_user_tables
    WHERE schemaname = 'perdure' AND relname IN ('process', 'event', 'message', 'key_kept')
"""


async def counters(ground: PostgresGround, sql: str) -> Mapping[str, tuple[int, ...]]:
    """Statistics by table or index; the sessions measured have ended, so that they have told all."""
    await ground.outside.execute("SELECT pg_stat_clear_snapshot()")
    return {row[0]: tuple(row[1:]) for row in await ground.outside.fetch(sql)}


async def work(ground: PostgresGround, processes: int) -> None:
    """Start, send to, step, beat for and finish so many new processes, in batches."""
    store: Store = ground.store()
    await store.open()
    trial = Trial(ground, store)
    trial.ids = MovableMachine(seed=processes)
    worker = await trial.worker()
    for _ in range(0, processes, 500):
        starts = [Start(trial.process(owner=worker, token=1, key=None), lease=LEASE) for _ in range(500)]
        await store.start(starts)
        rows = [start.process for start in starts]
        await store.send([trial.signal(row.id) for row in rows[:50]])
        commits = [going_on(row) for row in rows]
        await store.commit(commits)
        rows = [commit.after for commit in commits]
        await trial.beat(worker, *rows)
        await store.commit([finished(row, seen=place < 50) for place, row in enumerate(rows)])
        await store.start([Start(trial.process(key=trial.ids.new_id().hex())) for _ in range(100)])
        await trial.claim(worker, limit=100)
    await store.close()


async def test_no_batch_statement_reads_a_whole_table_however_it_grows(postgres: PostgresGround) -> None:
    await work(postgres, 500)
    before = await counters(postgres, SCANS)
    await work(postgres, 5_000)
    after = await counters(postgres, SCANS)
    assert after == before, "a batch statement scanned a table from end to end"


READS = """
    SELECT sum(idx_tup_fetch)::float, (sum(n_tup_ins) + sum(n_tup_upd))::float
    FROM pg_stat_user_tables WHERE schemaname = 'perdure'
"""


async def test_the_rows_read_for_each_row_written_do_not_grow_with_the_table(postgres: PostgresGround) -> None:
    ratios = []
    await work(postgres, 500)
    for processes in (1_000, 2_000, 4_000):
        fetched, written = (await postgres.outside.fetch(READS))[0]
        await work(postgres, processes)
        await postgres.outside.execute("SELECT pg_stat_clear_snapshot()")
        fetched_after, written_after = (await postgres.outside.fetch(READS))[0]
        ratios.append((fetched_after - fetched) / (written_after - written))
    assert max(ratios) < 1.5 * min(ratios)


async def test_settings_of_the_batch_functions_do_not_leak_into_the_session(
    postgres: PostgresGround, trial: Trial
) -> None:
    names = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan", "plan_cache_mode", "jit")
    functions = await postgres.outside.fetch(
        "SELECT proname, array_to_string(proconfig, ' ') FROM pg_proc "
        "WHERE pronamespace = 'perdure'::regnamespace AND proname = ANY ($1)",
        ["start", "commit", "commit_alone", "send", "claim", "claim_due", "claim_suspects", "beat", "prune"],
    )
    assert len(functions) == 9
    for name, settings in functions:
        assert all(f"{setting}=" in settings for setting in names), name
    async with postgres.outside.transaction():
        before = [await postgres.outside.fetchval(f"SHOW {name}") for name in names]
        await postgres.outside.fetch("SELECT * FROM perdure.prune(0, 0, 1)")
        assert [await postgres.outside.fetchval(f"SHOW {name}") for name in names] == before


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
