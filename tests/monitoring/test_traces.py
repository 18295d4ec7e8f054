"""A process is one trace over all its workers, and a replay makes no span a second time."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode

from perdure import Engine
from perdure.errors import CallRefused, DefinitionError, InvalidInput, PayloadTooLarge, ProcessFailed
from perdure.kernel.names import id_bytes
from perdure.monitoring.span_ids import TraceParent, trace_of
from tests.monitoring import shop
from tests.monitoring.conftest import Spans
from tests.runtime.conftest import LIMIT, Open, lose, until


@pytest.fixture(autouse=True)
def _none_called() -> None:
    shop.calls.clear()
    shop.held = asyncio.Event()


async def test_a_process_is_one_trace_with_its_attempts_children_and_queued_steps(opened: Open, spans: Spans) -> None:
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, traces=spans.provider)
    handle = await engine.start(shop.order.options(key="O-1"), "cup")
    assert await handle.result() == 1299
    await until(lambda: spans.named("order"))
    order, gift, queued = spans.one("order"), spans.one("gift"), spans.one("queue bank")
    assert {span.context.trace_id for span in spans.all} == {trace_of(id_bytes(handle.id))}
    assert order.parent is None
    for child in (gift, queued):
        assert child.parent.span_id == order.context.span_id
    first, second = spans.named("falter")
    assert first.context.span_id != second.context.span_id
    assert (first.status.status_code, first.attributes["error.type"]) == (StatusCode.ERROR, "ConnectionError")
    assert (first.attributes["perdure.attempt"], second.attributes["perdure.attempt"]) == (1, 2)
    assert second.status.status_code is StatusCode.UNSET
    assert first.parent.span_id == second.parent.span_id == order.context.span_id
    assert {span.parent.span_id for span in spans.named("pack")} == {order.context.span_id, gift.context.span_id}
    assert (spans.one("pay").parent.span_id, queued.kind) == (queued.context.span_id, SpanKind.CONSUMER)
    assert (order.attributes["perdure.process_id"], order.attributes["perdure.key"]) == (handle.id, "O-1")
    assert all(span.start_time <= span.end_time for span in spans.all)
    assert order.start_time <= first.start_time <= first.end_time <= order.end_time


async def test_over_two_workers_one_of_which_dies_each_span_is_made_once(opened: Open, spans: Spans) -> None:
    engine, store = await opened(work=True, workflows=shop.WORKFLOWS, traces=spans.provider)
    handle = await engine.start(shop.asks, "wait")
    await until(lambda: "ask" in shop.calls)
    assert [span.name for span in spans.all] == ["pack"]
    other, _ = await opened(work=True, workflows=shop.WORKFLOWS, traces=spans.provider)
    await lose(engine, store)
    await until(lambda: shop.calls.count("ask") == 2)
    shop.held.set()
    assert await other.process(handle.id).result() == "wait"
    await until(lambda: spans.named("asks"))
    asks, pack, ask = spans.one("asks"), spans.one("pack"), spans.one("ask")
    assert pack.parent.span_id == ask.parent.span_id == asks.context.span_id
    assert {span.context.trace_id for span in (asks, pack, ask)} == {trace_of(id_bytes(handle.id))}
    assert shop.calls == ["pack", "ask", "ask"], "what was recorded was replayed, what was under way was done again"
    assert all(span.parent.span_id == asks.context.span_id for span in spans.named("revived"))
    assert len({span.context.span_id for span in spans.all}) == len(spans.all)


async def test_the_spans_of_two_engines_with_one_provider_have_the_ids_of_their_own_processes(
    opened: Open, spans: Spans
) -> None:
    engines = [(await opened(work=True, workflows=shop.WORKFLOWS, traces=spans.provider))[0] for _ in range(2)]
    for engine in engines:
        handle = await engine.start(shop.gift, "cup")
        await handle.result()
        own = trace_of(id_bytes(handle.id))
        await until(lambda own=own: [span for span in spans.named("gift") if span.context.trace_id == own])
    assert len(spans.named("gift")) == 2


async def test_the_span_of_the_starter_is_the_parent_and_code_sees_it_in_its_context(
    opened: Open, spans: Spans
) -> None:
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, traces=spans.provider)
    with spans.provider.get_tracer("web").start_as_current_span("POST /orders") as request:
        handle = await engine.start(shop.tells.options(context={"tenant": "acme"}))
    seen = await handle.result()
    here = request.get_span_context()
    assert seen == {"tenant": "acme", "traceparent": TraceParent(here.trace_id, here.span_id, True).text}
    await until(lambda: spans.named("tells"))
    tells = spans.one("tells")
    assert (tells.context.trace_id, tells.parent.span_id) == (here.trace_id, here.span_id)


async def test_a_traceparent_that_comes_with_a_request_counts_more_than_the_span_around(
    opened: Open, spans: Spans
) -> None:
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, traces=spans.provider)
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with spans.provider.get_tracer("web").start_as_current_span("POST /orders"):
        handle = await engine.start(shop.tells.options(context={"traceparent": given}))
    assert await handle.result() == {"traceparent": given}
    await until(lambda: spans.named("tells"))
    assert (spans.one("tells").context.trace_id, spans.one("tells").parent.span_id) == (
        0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
    )  # fmt: skip


async def test_a_trace_that_its_starter_does_not_record_is_not_recorded_by_anybody(opened: Open, spans: Spans) -> None:
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, traces=spans.provider)
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
    assert await (await engine.start(shop.order.options(context={"traceparent": given}), "cup")).result() == 1299
    marked = await engine.start(shop.gift, "cup")
    await marked.result()
    await until(lambda: spans.named("gift"))
    assert {span.attributes["perdure.process_id"] for span in spans.all} == {marked.id}


async def test_what_is_no_traceparent_is_left_alone_and_the_process_has_a_trace_of_its_own(
    opened: Open, spans: Spans
) -> None:
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, traces=spans.provider)
    handle = await engine.start(shop.tells.options(context={"traceparent": "nonsense"}))
    assert await handle.result() == {"traceparent": "nonsense"}
    await until(lambda: spans.named("tells"))
    assert spans.one("tells").context.trace_id == trace_of(id_bytes(handle.id))


async def test_a_span_that_a_step_makes_is_a_child_of_its_attempt(opened: Open, spans: Spans) -> None:
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, traces=spans.provider)
    seen = await (await engine.start(shop.weighs)).result()
    await until(lambda: spans.named("weighs"))
    weigh = spans.one("weigh")
    assert (int(seen["trace"], 16), int(seen["span"], 16)) == (weigh.context.trace_id, weigh.context.span_id)


async def test_a_call_of_a_machine_is_a_span_and_a_refused_one_says_so(opened: Open, spans: Spans) -> None:
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, traces=spans.provider)
    account: Any = await engine.start(shop.Account.opened)
    assert await account.call(shop.Account.deposit, 500) == 500
    with pytest.raises(CallRefused):
        await account.call(shop.Account.deposit, -1)
    await until(lambda: len(spans.named("call deposit")) == 2)
    good, bad = spans.named("call deposit")
    assert (good.kind, good.status.status_code, bad.status.status_code) == (
        SpanKind.SERVER, StatusCode.UNSET, StatusCode.ERROR
    )  # fmt: skip
    assert good.parent.span_id == bad.parent.span_id and good.context.span_id != bad.context.span_id


async def test_each_run_has_a_span_of_its_own_in_one_trace(opened: Open, spans: Spans) -> None:
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, traces=spans.provider)
    handle = await engine.start(shop.hangs)
    for _ in range(2):
        with pytest.raises(ProcessFailed):
            await handle.result()
        await handle.retry(who="Ann")
    with pytest.raises(ProcessFailed):
        await handle.result()
    await until(lambda: len(spans.named("hangs")) == 3)
    runs = spans.named("hangs")
    assert [span.attributes["perdure.run"] for span in runs] == [1, 2, 3]
    assert len({span.context.span_id for span in runs}) == 3 and len({span.context.trace_id for span in runs}) == 1
    assert [span.parent.span_id for span in spans.named("hang")] == [span.context.span_id for span in runs]


async def test_a_process_is_sampled_as_a_whole_by_the_id_of_its_trace(sqlite_url: str, spans: Spans) -> None:
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(0.5)))
    provider.add_span_processor(spans.provider._active_span_processor)
    async with Engine(sqlite_url, work=True, workflows=shop.WORKFLOWS, traces=provider) as engine:
        handles = [await engine.start(shop.gift, "cup") for _ in range(20)]
        for handle in handles:
            await handle.result()
        roots = len(spans.named("gift"))
    assert 0 < roots < 20
    assert {span.parent.span_id for span in spans.named("pack")} == {s.context.span_id for s in spans.named("gift")}


async def test_a_sampler_that_wants_nothing_gets_nothing(sqlite_url: str, spans: Spans) -> None:
    provider = TracerProvider(sampler=ALWAYS_OFF)
    provider.add_span_processor(spans.provider._active_span_processor)
    async with Engine(sqlite_url, work=True, workflows=shop.WORKFLOWS, traces=provider) as engine:
        assert await (await engine.start(shop.order, "cup")).result() == 1299
    assert spans.all == ()


async def test_no_argument_result_or_message_of_an_error_is_in_a_span(opened: Open, spans: Spans) -> None:
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, traces=spans.provider)
    assert await (await engine.start(shop.order, "4929-secret")).result() == 1299
    await until(lambda: spans.named("order"))
    told = "".join(span.to_json() for span in spans.all)
    assert "secret" not in told and "the line is dead" not in told


async def test_a_context_without_room_for_the_trace_goes_to_children_and_queued_steps_as_it_is(
    opened: Open, spans: Spans
) -> None:
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, traces=spans.provider)
    handle = await engine.start(shop.order.options(context={"blob": "x" * 4050}), "cup")
    assert await handle.result(LIMIT) == 1299
    await until(lambda: spans.named("order"))
    order, queued = spans.one("order"), spans.one("queue bank")
    assert (order.parent, queued.parent) == (None, None), "each has a trace of its own"


async def test_a_child_whose_attributes_leave_no_room_for_the_trace_is_started_without_it(
    opened: Open, spans: Spans
) -> None:
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, traces=spans.provider)
    handle = await engine.start(shop.gives_much)
    assert await handle.result(LIMIT) == "cup"


async def test_a_start_inside_a_span_keeps_its_context_and_attributes_if_they_leave_no_room_for_the_span(
    opened: Open, spans: Spans
) -> None:
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, traces=spans.provider)
    much = {"blob": "x" * 4050}
    with spans.provider.get_tracer("web").start_as_current_span("POST /orders"):
        full = await engine.start(shop.tells.options(context=much))
        marked = await engine.start(shop.tells.options(context={"tenant": "acme"}, attributes=shop.MUCH))
        with pytest.raises(PayloadTooLarge, match="the context"):
            await engine.start(shop.tells.options(context={"blob": "x" * 4096}))
        with pytest.raises(InvalidInput, match="is no context"):
            await engine.start(shop.tells.options(context="acme"))
    assert (await full.result(LIMIT), await marked.result(LIMIT)) == (much, {"tenant": "acme"})


async def test_a_call_inside_a_span_keeps_its_context_if_that_leaves_no_room_for_the_span(
    opened: Open, spans: Spans
) -> None:
    engine, _ = await opened(work=True, workflows=shop.WORKFLOWS, traces=spans.provider)
    account: Any = await engine.start(shop.Account.opened)
    much = {"blob": "x" * 4050}
    with spans.provider.get_tracer("web").start_as_current_span("POST /orders"):
        assert await account.call(shop.Account.tells.options(context=much)) == much


async def test_a_sampler_or_a_span_processor_that_raises_stops_no_process(
    sqlite_url: str, spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    provider = TracerProvider(sampler=FailingSampler())
    failing = TracerProvider()
    failing.add_span_processor(FailingProcessor())
    for given in (provider, failing):
        async with Engine(sqlite_url, work=True, workflows=shop.WORKFLOWS, traces=given) as engine:
            assert await (await engine.start(shop.order, "cup")).result(LIMIT) == 1299
            assert engine.telemetry.counters["commits"] >= 4
    assert "could not be made" in caplog.text and "please report it" not in caplog.text


class FailingSampler(Sampler):
    """A sampler with a mistake."""

    def should_sample(self, *given: Any, **named: Any) -> Any:
        """Fails."""
        raise LookupError("no rule for this")

    def get_description(self) -> str:
        """What it is."""
        return "failing"


class FailingProcessor(SpanProcessor):
    """A span processor with a mistake."""

    def on_end(self, span: Any) -> None:
        """Fails."""
        raise LookupError("no place for this")


def test_what_is_no_provider_is_refused_at_the_door() -> None:
    for wrong in (True, object()):
        with pytest.raises(DefinitionError, match=re.escape("there is no TracerProvider of OpenTelemetry's SDK")):
            Engine("sqlite://:memory:", traces=wrong)


@pytest.mark.parametrize(
    "wrong",
    ["", "00", None, 7, "ff-" + "1" * 32 + "-" + "1" * 16 + "-01", "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
     "00-" + "1" * 32 + "-" + "0" * 16 + "-01", "00-" + "A" * 32 + "-" + "1" * 16 + "-01",
     "00-" + "١" * 32 + "-" + "1" * 16 + "-01"],
)  # fmt: skip
def test_a_stranger_may_send_what_is_no_traceparent(wrong: Any) -> None:
    assert TraceParent.read(wrong) is None


def test_a_traceparent_of_a_later_version_is_read() -> None:
    given = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what.comes"
    found = TraceParent.read(given)
    assert found is not None and found.text == "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
