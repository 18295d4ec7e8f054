"""What is counted: by kind, step, queue and status, once, and under names that Prometheus knows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from perdure import Engine
from perdure.errors import DefinitionError, ProcessFailed, StoreUnavailable
from perdure.kernel.queue import QueueDepth
from perdure.monitoring.catalogue import METRICS, RECOVERIES, REQUESTS
from perdure.monitoring.series import OTHER, Counts, Histograms
from perdure.runtime.committer import Committer
from perdure.runtime.options import WorkerOptions
from perdure.runtime.steps.agent import Agent
from perdure.telemetry import COUNTERS, Telemetry
from tests.monitoring import shop
from tests.runtime.conftest import Open, lose, until

SWIFT = WorkerOptions(sweeps={"owner_gone": 0.05})
"""Sweeps that need not be waited for."""


@pytest.fixture(autouse=True)
def _none_called() -> None:
    shop.calls.clear()
    shop.held = asyncio.Event()


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    """One sample; 0 if there is none."""
    return registry.get_sample_value(name, labels) or 0.0


async def test_processes_steps_and_queues_are_counted_by_their_names_and_how_they_end(opened: Open) -> None:
    registry = CollectorRegistry()
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, metrics=registry)
    assert await (await engine.start(shop.order, "cup")).result() == 1299
    with pytest.raises(ProcessFailed):
        await (await engine.start(shop.hangs)).result()
    assert value(registry, "perdure_processes_started_total", kind="order") == 1
    assert value(registry, "perdure_processes_started_total", kind="gift") == 1
    assert value(registry, "perdure_process_wait_seconds_count", kind="gift") == 1
    ends = "perdure_process_duration_seconds_count"
    assert value(registry, ends, kind="order", status="completed") == 1
    assert value(registry, ends, kind="hangs", status="failed") == 1
    attempts = "perdure_step_duration_seconds_count"
    assert value(registry, attempts, step="pack", queue="", outcome="completed") == 2
    assert value(registry, attempts, step="falter", queue="", outcome="failed") == 1
    assert value(registry, attempts, step="falter", queue="", outcome="completed") == 1
    assert value(registry, attempts, step="pay", queue="bank", outcome="completed") == 1
    assert value(registry, "perdure_step_timeouts_total", step="hang", queue="") == 1
    assert value(registry, "perdure_queue_in_total", queue="bank") == 1
    assert value(registry, "perdure_queue_out_total", queue="bank", status="completed") == 1
    assert value(registry, "perdure_queue_wait_seconds_count", queue="bank") == 1
    assert value(registry, "perdure_queue_duration_seconds_count", queue="bank", status="completed") == 1
    assert value(registry, "perdure_turn_duration_seconds_count", phase="process") >= 1
    for request in ("claim", "start", "commit"):
        assert value(registry, "perdure_store_request_duration_seconds_count", request=request) >= 1
    assert value(registry, "perdure_completed_total") == 3


async def test_a_timed_out_attempt_is_one_failed_attempt_of_its_length(opened: Open) -> None:
    registry = CollectorRegistry()
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, metrics=registry)
    with pytest.raises(ProcessFailed):
        await (await engine.start(shop.hangs)).result()
    labels = {"step": "hang", "queue": "", "outcome": "failed"}
    assert value(registry, "perdure_step_duration_seconds_count", **labels) == 1
    assert value(registry, "perdure_step_duration_seconds_sum", **labels) >= 0.05


async def test_a_replay_counts_nothing_a_second_time(opened: Open) -> None:
    first, second = CollectorRegistry(), CollectorRegistry()
    engine, store = await opened(work=True, workflows=shop.WORKFLOWS, metrics=first)
    handle = await engine.start(shop.waits, "cup")
    await until(lambda: value(first, "perdure_step_duration_seconds_count", step="pack", queue="", outcome="completed"))
    await until(lambda: not any(one.events or one.commit for one in engine.worker.scheduler.instances.values()))
    other, _ = await opened(work=True, workflows=shop.WORKFLOWS, metrics=second)
    await lose(engine, store)
    await other.process(handle.id).signal("go", "on")
    assert await other.process(handle.id).result() == "cup"
    assert value(second, "perdure_turn_duration_seconds_count", phase="prepare") >= 1, "its history was replayed"
    for name, labels, each in (
        ("perdure_processes_started_total", {"kind": "waits"}, (1, 0)),
        ("perdure_process_wait_seconds_count", {"kind": "waits"}, (1, 0)),
        ("perdure_step_duration_seconds_count", {"step": "pack", "queue": "", "outcome": "completed"}, (1, 1)),
        ("perdure_process_duration_seconds_count", {"kind": "waits", "status": "completed"}, (0, 1)),
    ):
        assert (value(first, name, **labels), value(second, name, **labels)) == each, name


async def test_revivals_are_counted_by_kind_and_queue(opened: Open) -> None:
    registry = CollectorRegistry()
    engine, store = await opened(work=True, workflows=shop.WORKFLOWS)
    await engine.start(shop.asks, "wait")
    await engine.start(shop.counts, 7)
    await until(lambda: {"ask", "count"} <= set(shop.calls))
    await opened(work=True, workflows=shop.WORKFLOWS, metrics=registry, options=SWIFT)
    await lose(engine, store)
    for kind in ("asks", "@bank"):
        await until(lambda: value(registry, "perdure_processes_revived_total", kind=kind))  # noqa: B023
        assert value(registry, "perdure_processes_revived_total", kind=kind) == 1
    shop.held.set()


async def test_what_sweeps_have_read_freed_and_left_alone_is_counted_by_sweep(opened: Open) -> None:
    registry = CollectorRegistry()
    engine, store = await opened(work=True, workflows=shop.WORKFLOWS)
    await engine.start(shop.asks, "wait")
    await until(lambda: "ask" in shop.calls)
    other, _ = await opened(work=True, workflows=shop.WORKFLOWS, metrics=registry, options=SWIFT)
    await other.recovery.pause(who="Ann")
    await lose(engine, store)
    gone = {"sweep": "owner gone"}
    await until(lambda: value(registry, "perdure_sweep_rows_left_total", **gone))
    assert value(registry, "perdure_sweep_rows_changed_total", **gone) == 0
    await other.recovery.resume()
    await until(lambda: value(registry, "perdure_sweep_rows_changed_total", **gone))
    assert value(registry, "perdure_sweep_rows_changed_total", **gone) == 1
    assert value(registry, "perdure_sweep_rows_seen_total", **gone) >= 2
    assert value(registry, "perdure_sweep_passes_total", **gone) >= 2
    figures = other.metrics()
    assert figures["sweep_passes"] >= value(registry, "perdure_sweep_passes_total", **gone)
    assert figures["sweep_rows_changed"] >= 1 and figures["sweep_errors"] == 0
    shop.held.set()


async def test_a_key_that_is_released_is_no_second_end(opened: Open) -> None:
    registry = CollectorRegistry()
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, metrics=registry)
    handle = await engine.start(shop.gift.options(key="G-1"), "cup")
    await handle.result()
    await handle.release_key(who="Ann")
    ends = "perdure_process_duration_seconds_count"
    assert value(registry, ends, kind="gift", status="completed") == 1


async def test_a_refused_commit_is_not_counted(opened: Open) -> None:
    registry, elsewhere = CollectorRegistry(), CollectorRegistry()
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, metrics=registry)
    handle = await engine.start(shop.asks, "wait")
    await until(lambda: "ask" in shop.calls)
    other, _ = await opened(metrics=elsewhere)
    await other.process(handle.id).terminate()  # its owner does not know it yet when the step ends
    shop.held.set()
    await until(lambda: not engine.worker.busy)
    ends = "perdure_process_duration_seconds_count"
    assert value(elsewhere, ends, kind="asks", status="cancelled") == 1
    assert value(registry, ends, kind="asks", status="completed") == 0


async def test_what_a_person_ends_is_counted_where_the_command_was_given(opened: Open) -> None:
    registry = CollectorRegistry()
    engine, _ = await opened(metrics=registry)
    handle = await engine.start(shop.gift, "cup")
    assert value(registry, "perdure_processes_started_total", kind="gift") == 1
    assert value(registry, "perdure_process_wait_seconds_count", kind="gift") == 0, "no worker has begun it"
    await handle.hold()
    await handle.terminate()
    assert value(registry, "perdure_processes_stopped_total", kind="gift", status="held") == 1
    assert value(registry, "perdure_process_duration_seconds_count", kind="gift", status="cancelled") == 1


async def test_what_waits_in_a_queue_is_read_from_the_database(opened: Open) -> None:
    registry = CollectorRegistry()
    engine, _ = await opened(work=True, workflows=[shop.order, shop.gift], queues=["airport"], metrics=registry)
    await engine.start(shop.order, "cup")
    async with Engine(engine.store.url) as client:
        while not await client.store.records(QueueDepth):
            await client.store.now()
    engine._monitor._loop.wake()
    await until(lambda: value(registry, "perdure_queue_depth", queue="bank"))
    assert value(registry, "perdure_queue_delayed", queue="bank") == 0
    assert value(registry, "perdure_queue_oldest_seconds", queue="bank") > 0
    assert registry.get_sample_value("perdure_queue_workers", {"queue": "bank"}) == 0, "nobody polls it"
    [seen] = [one for one in await engine.queues.list() if one.name == "bank"]
    assert (seen.waiting, seen.running, seen.workers, seen.polled_at) == (1, 0, 0, None)
    slots = value(registry, "perdure_worker_slots")
    assert slots == value(registry, "perdure_worker_slots_free") + value(registry, "perdure_worker_held")
    assert value(registry, "perdure_worker_last_poll_timestamp_seconds") > 1e9


async def test_an_engine_without_metrics_and_traces_is_made_of_the_plain_parts(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS)
    scheduler: Any = engine.worker.scheduler
    assert (type(engine.committer), type(scheduler.agent), type(engine.telemetry)) == (Committer, Agent, Telemetry)
    assert scheduler.ready.turn == scheduler._turn and engine.tracer is None


# -- names and labels ----------------------------------------------------------------------------------------------


async def test_every_metric_that_is_told_is_in_the_catalogue_and_named_as_prometheus_does(sqlite_url: str) -> None:
    registry = CollectorRegistry()
    async with Engine(sqlite_url, work=True, workflows=shop.WORKFLOWS, metrics=registry) as engine:
        assert await (await engine.start(shop.order, "cup")).result() == 1299
        await engine.breakers.reset("bank")
        engine._monitor._loop.wake()
        await until(lambda: engine._monitor._queues and engine._monitor._breakers)
        families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    told = {family.name: family for family in families}
    assert told.keys() == METRICS.keys()
    for name, family in told.items():
        metric = METRICS[name]
        assert family.type == metric.kind and family.documentation == metric.meaning
        assert name.startswith("perdure_") and not name.endswith("_total")
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == set(metric.labels), sample
            if metric.kind == "counter":
                assert sample.name == f"{name}_total"
            assert not any(sample.labels.get(one) == str(engine.worker) for one in sample.labels)
    for name, metric in METRICS.items():
        assert (metric.kind == "histogram") == name.endswith(("_duration_seconds", "_wait_seconds")), name


def test_causes_and_requests_are_those_that_the_engine_counts() -> None:
    assert {name for names in RECOVERIES.values() for name in names} <= COUNTERS.keys()
    assert set(REQUESTS) == {"claim", "start", "commit", "send", "beat", "sweep"}


def test_labels_beyond_the_limit_are_counted_together_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    counts = Counts("perdure_step_timeouts", 2, most=3)
    for number in range(10):
        counts.add((f"step-{number}", ""))
        counts.add((f"step-{number}", ""))
    assert counts.values == {("step-0", ""): 2, ("step-1", ""): 2, ("step-2", ""): 2, (OTHER, OTHER): 14}
    [said] = caplog.records
    assert "perdure_step_timeouts has 3 series" in said.message and "'other'" in said.message


def test_the_closed_labels_of_what_is_beyond_the_limit_stay() -> None:
    times = Histograms("perdure_process_duration_seconds", 1, most=2)
    for number in range(5):
        times.observe((f"kind-{number}", "failed"), 0.2)
        times.observe((f"kind-{number}", "completed"), 0.2)
    assert set(times.cells) == {
        ("kind-0", "failed"), ("kind-0", "completed"), (OTHER, "failed"), (OTHER, "completed")
    }  # fmt: skip
    assert sum(buckets[-1][1] for _, buckets, _ in times) == 10


def test_a_histogram_puts_each_time_into_the_bucket_that_holds_it() -> None:
    times = Histograms("perdure_process_wait_seconds", 1)
    for seconds in (-1.0, 0.0, 0.001, 0.0011, 1.0, 1_000_000.0):
        times.observe(("order",), seconds)
    [(labels, buckets, total)] = times
    found = dict(buckets)
    assert labels == ("order",) and total == pytest.approx(1_000_001.0021)
    assert (found["0.001"], found["0.0025"], found["0.5"], found["1.0"], found["259200.0"], found["+Inf"]) == (
        3, 4, 4, 5, 5, 6
    )  # fmt: skip


# -- what is no registry ------------------------------------------------------------------------------------------


def test_what_is_no_registry_is_refused_at_the_door() -> None:
    with pytest.raises(DefinitionError, match=r"metrics=True is no registry. Give prometheus_client.REGISTRY"):
        Engine("sqlite://:memory:", metrics=True)


async def test_a_registry_is_for_one_engine_at_a_time() -> None:
    registry = CollectorRegistry()
    async with Engine("sqlite://:memory:", work=True, workflows=[], metrics=registry):
        with pytest.raises(DefinitionError, match="collects the metrics of another engine already"):
            await Engine("sqlite://:memory:", metrics=registry).__aenter__()
    async with Engine("sqlite://:memory:", work=True, workflows=[], metrics=registry) as engine:
        assert value(registry, "perdure_worker_slots") == engine.options.in_flight
    assert WorkerOptions().in_flight == 2000


@pytest.mark.parametrize("call", ["open", "now"])
async def test_an_engine_that_could_not_be_entered_may_be_entered_again_and_has_kept_no_registry(
    store_url: str, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    registry = CollectorRegistry()
    engine = Engine(store_url, work=True, workflows=[], migrate=True, metrics=registry)

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(engine.store, call, away)
        with pytest.raises(StoreUnavailable):
            await engine.__aenter__()
    assert registry.get_sample_value("perdure_completed_total") is None
    async with Engine(store_url, work=True, workflows=[], migrate=True, metrics=registry):
        assert registry.get_sample_value("perdure_completed_total") == 0
    for _ in range(2):
        async with engine:
            assert value(registry, "perdure_worker_slots") == engine.options.in_flight
    assert registry.get_sample_value("perdure_completed_total") is None
