"""Check runs: durable, several at once, narrowed, at a rate, cancelled; and what they have found, from each door."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import BlockingEngine, Engine
from perdure.authoring.check import machine
from perdure.errors import CallRefused, CallUnanswered, InvalidInput, StoreUnavailable
from perdure.runtime.options import WorkerOptions
from perdure.store.sealed.codec import AesGcm
from perdure.store.sealed.offload import Folder
from tests.checks import plants, shop
from tests.runtime.conftest import LIMIT, Open, lose, until_row

DAMAGE = "UPDATE process SET deaths = 7 WHERE id = :id"
QUIET = WorkerOptions(check_rate=0)


async def damaged(opened: Open, store_url: str, many: int, bad: int) -> Engine:
    """A worker, and delayed orders of which the first ones are damaged."""
    engine, _ = await opened(work=True, workflows=[shop], options=QUIET)
    handles = [await engine.start(shop.order.options(key=f"A-{n}", delay=3600), f"A-{n}") for n in range(many)]
    for handle in handles[:bad]:
        await plants.sow(store_url, handle.id, DAMAGE)
    return engine


async def test_a_run_goes_on_after_its_worker_has_died_and_counts_each_process_once(
    opened: Open, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "PORTION", 2)
    monkeypatch.setattr("perdure.client.checks.CHECK_ROWS", 2)
    engine = await damaged(opened, store_url, 9, 4)
    run = await engine.checks.start(kind="order", fix=True, rate=8.0, who="ann", why="the disk")
    await until_row(engine, run.id, lambda row: b'"checked":2' in (row.state or b""))
    assert engine.worker is not None
    _, store = await opened()
    await lose(engine, store)
    other, _ = await opened(work=True, workflows=[shop], options=QUIET)
    status = await other.checks.handle(run.id).result(LIMIT)
    assert (status.phase, status.checked, status.total) == ("done", 9, 9)
    assert (status.found, status.mended) == ({"one_transaction": 4}, {"one_transaction": 4})
    assert await other.checks.handle(run.id).status() == status
    assert await other.count(where="kind = order and status = broken") == {"order": {"broken": 4}}


async def test_a_run_is_narrowed_by_kind_query_and_name_and_several_go_at_once(opened: Open, store_url: str) -> None:
    engine = await damaged(opened, store_url, 4, 2)
    runs = [
        await engine.checks.start(kind="order", priority=0),
        await engine.checks.start(where="key = A-0"),
        await engine.checks.start(kind="delivery"),
        await engine.checks.start(kind="order", only=["history_is_gapless"]),
    ]
    found = [(await run.result(LIMIT)) for run in runs]
    assert [one.checked for one in found] == [4, 1, 0, 4]
    assert [one.found.get("one_transaction", 0) for one in found] == [2, 1, 0, 0]
    assert len(await engine.checks.runs()) == 4
    rows = [await engine.row(run.id) for run in runs]
    assert [row.priority for row in rows] == [0, 4, 4, 4]


async def test_what_is_kept_outside_the_database_is_examined_and_mended_too(
    opened: Open, store_url: str, tmp_path: Path
) -> None:
    outside = Folder(tmp_path / "blobs", above=100)
    engine, _ = await opened(work=True, workflows=[shop], options=QUIET, offload=outside)
    handle = await engine.start(shop.order, "A-1" * 1000)
    await until_row(engine, handle.id, lambda row: row.owner is None and row.awaiting)
    await plants.sow(store_url, handle.id, plants.PLANTS["reminder_is_near"].sql)
    preview = await engine.checks.preview(kind="order")
    assert (preview.checked, preview.would_mend) == (1, {"reminder_is_near": 1})
    status = await (await engine.checks.start(kind="order", fix=True)).result(LIMIT)
    assert (status.checked, status.total, status.mended) == (1, 1, {"reminder_is_near": 1})
    assert (await engine.checks.preview(kind="order")).found == {}
    await handle.signal("go", None)
    assert await handle.result(LIMIT) == "A-1" * 1000


async def test_what_only_others_can_open_is_not_counted_as_examined(opened: Open) -> None:
    sealing, _ = await opened(codecs=[AesGcm({"theirs": bytes(32)})])
    await sealing.start(shop.order.options(delay=3600), "A-1")
    engine, _ = await opened(work=True, workflows=[shop], options=QUIET, codecs=[AesGcm({"ours": bytes(32)})])
    assert (await engine.checks.preview(kind="order")).checked == 0
    status = await (await engine.checks.start(kind="order", rate=1000.0)).result(LIMIT)
    assert (status.phase, status.checked, status.total, status.found) == ("done", 0, 1, {})


async def test_a_cancelled_run_examines_nothing_more(
    opened: Open, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "PORTION", 1)
    monkeypatch.setattr("perdure.client.checks.CHECK_ROWS", 1)
    engine = await damaged(opened, store_url, 4, 1)
    run = await engine.checks.start(kind="order", rate=0.01)
    await until_row(engine, run.id, lambda row: b'"checked":1' in (row.state or b""))
    assert (await run.status()).phase == "running"
    await run.cancel("too slow")
    status = await run.result(LIMIT)
    assert (status.phase, status.cancelled, status.checked, status.found) == ("cancelled", "too slow", 1, {})
    with pytest.raises((CallRefused, CallUnanswered)):
        await run.cancel()


async def test_a_run_whose_process_was_ended_is_cancelled(
    opened: Open, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "PORTION", 1)
    monkeypatch.setattr("perdure.client.checks.CHECK_ROWS", 1)
    engine = await damaged(opened, store_url, 4, 0)
    run = await engine.checks.start(kind="order", rate=0.01)
    await until_row(engine, run.id, lambda row: b'"checked":1' in (row.state or b""))
    await engine.process(run.id).terminate(who="ann", why="too slow")
    waiting = await engine.checks.start(kind="order", priority=9)
    await engine.process(waiting.id).fail(who="ann")
    status = await run.status()
    assert (status.phase, status.checked, status.total) == ("cancelled", 1, 4)
    assert status.cancelled == "its process has been cancelled: terminated by ann because: too slow"
    failed = await waiting.status()
    assert (failed.phase, failed.cancelled) == ("cancelled", "its process has failed: marked as failed by ann")
    assert await engine.checks.runs() == [(waiting.id, failed), (run.id, status)]


async def test_a_store_that_is_away_is_asked_again_and_nothing_is_counted_twice(opened: Open, store_url: str) -> None:
    engine, store = await opened(work=True, workflows=[shop], options=QUIET)
    handle = await engine.start(shop.order.options(delay=3600), "A-1")
    await plants.sow(store_url, handle.id, DAMAGE)
    failed: list[str] = []

    async def away(name: str, argument: object) -> None:
        if name == "history" and len(failed) < 2:
            failed.append(name)
            raise StoreUnavailable("it is away")

    store.before = away
    status = await (await engine.checks.start(kind="order")).result(LIMIT)
    assert len(failed) == 2 and (status.checked, status.found) == (1, {"one_transaction": 1})


async def test_what_makes_no_sense_is_refused_before_anything_is_read(opened: Open) -> None:
    engine, _ = await opened()
    for wrong in (
        {"only": ["history"]}, {"where": "colour = red"}, {"rate": 0}, {"where": "age > 1h", "kind": "order"},
        {"priority": 12},
    ):  # fmt: skip
        with pytest.raises(InvalidInput):
            await engine.checks.start(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="history_is_gapless"):
        await engine.checks.preview(only=["history_is_gaples"])


async def test_the_handle_of_a_run_leaves_any_other_process_alone(opened: Open) -> None:
    engine, _ = await opened(workflows=[shop])
    order = await engine.start(shop.order.options(delay=3600), "A-1")
    other = engine.checks.handle(order.id)
    for verb in (other.status, other.cancel, other.result):
        with pytest.raises(InvalidInput, match="is no check run, its kind is order; `perdure check show`"):
            await verb()
    assert (await engine.row(order.id)).inbox == 0, "nothing was sent"


async def test_the_verbs_block_for_code_without_an_event_loop(opened: Open, store_url: str) -> None:
    engine = await damaged(opened, store_url, 2, 1)

    def all_of_them() -> None:
        with BlockingEngine(store_url) as blocking:
            assert {check.name for check in blocking.checks.list()} >= {"one_owner", "parent_is_told"}
            assert blocking.checks.preview(kind="order").found == {"one_transaction": 1}
            run = blocking.checks.start(kind="order", fix=True, who="ann")
            assert run.result(LIMIT).mended == {"one_transaction": 1}
            assert blocking.checks.handle(run.id).status().phase == "done"
            [finding] = blocking.checks.findings(gone=True)
            assert finding.mended_by == "ann"
            assert len(blocking.checks.runs()) == 1
            assert blocking.checks.background().checked == 0

    await asyncio.to_thread(all_of_them)
    await engine.close()
