"""Traces for OpenTelemetry: one trace for a process, over all workers that run it, with its steps as spans.

Ids of traces and spans follow from the process, its run and the step, so that all workers name them alike without
asking each other. A span is made when what it tells has been written, by the worker that has written it: a replay
writes nothing, so that it makes none a second time, and what a killed worker had under way makes one when it is done.

A trace stops no process: a context that has no room for it goes on without it, and an error of a sampler or of a span
processor is logged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from msgspec import json
from msgspec.structs import replace

from perdure import limits
from perdure.authoring.attempt import ATTEMPT
from perdure.authoring.step import Attempt
from perdure.errors import DefinitionError, PayloadTooLarge
from perdure.kernel import context as carried
from perdure.kernel.child import is_task
from perdure.kernel.commit import APPLIED, CREATED, Commit, Start
from perdure.kernel.event import ANSWERS, Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import LETTERS, Message
from perdure.kernel.names import id_text
from perdure.kernel.process import RUNNING, Process, Status
from perdure.kernel.retry import decode_attempt
from perdure.logs import logger
from perdure.monitoring.span_ids import TRACEPARENT, SpanIds, TraceParent, trace_of

try:
    from opentelemetry import context as otel_context
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags
    from opentelemetry.trace.status import Status as SpanStatus
    from opentelemetry.trace.status import StatusCode
except ImportError as error:
    raise DefinitionError(
        "traces need the libraries of OpenTelemetry. Install them: pip install 'perdure[otel]'"
    ) from error

if TYPE_CHECKING:
    from perdure.runtime.observed import Records, WrittenAnswers
    from perdure.runtime.ready import Ready
    from perdure.runtime.steps.attempt_run import AttemptRun
    from perdure.runtime.store_time import StoreTime

log = logger("worker")

_ENDS = {
    EventType.COMPLETED, EventType.FAILED, EventType.CANCELLED, EventType.BROKEN, EventType.TERMINATED,
    EventType.EXPIRED,
}  # fmt: skip


class Took(NamedTuple):
    """An attempt that has ended and is not written yet: its number, and its times by the store's clock."""

    number: int
    began: int
    ended: int


class Traces:
    """A tracer for one engine: see :class:`perdure.runtime.observed.Tracer`.

    ``provider`` is a TracerProvider of OpenTelemetry's SDK, or True for the global one. Raises DefinitionError if it is
    none.
    """

    def __init__(self, provider: Any) -> None:
        given = trace.get_tracer_provider() if provider is True else provider
        if not isinstance(given, TracerProvider):
            raise DefinitionError(
                f"traces={provider!r:.100}: there is no TracerProvider of OpenTelemetry's SDK. Set one with "
                "opentelemetry.trace.set_tracer_provider(...) before the engine is made, or give it as traces="
            )
        self._sampler = given.sampler
        self._tracer = cast(Any, given.get_tracer("perdure"))
        found = self._tracer.id_generator  # the SDK gives all engines of this provider the same tracer
        self._ids = self._tracer.id_generator = found if isinstance(found, SpanIds) else SpanIds(found)
        self._took: dict[tuple[bytes, int, str, str], Took] = {}
        self._calls: dict[tuple[bytes, int], int] = {}
        self._runs: dict[tuple[bytes, int], int] = {}
        self._ended: dict[tuple[bytes, int], None] = {}
        self._failures: set[type[Exception]] = set()

    # -- what goes out -------------------------------------------------------------------------------------------

    def start(self, process: Process, given: Mapping[str, Any] | None) -> Process:
        """See Tracer: a start from within a span carries that span, unless its context names another one.

        Raises InvalidInput or PayloadTooLarge, because of what is ``given``.
        """
        here = _here()
        if here is not None and (given is None or isinstance(given, Mapping)):
            try:
                return carried.carrying(process, _with(here, given or {}))
            except PayloadTooLarge:
                pass  # what is given goes first
        return process if given is None else carried.carrying(process, carried.checked(given))

    def commit(self, commit: Commit) -> Commit:
        """See Tracer: children are told the trace of their parent, and its span."""
        parent = self._parent_of(commit.after)
        own = parent._replace(span=self._ids.of_run(commit.after.id, commit.after.run))
        return replace(commit, starts=tuple(_in_trace(start, own) for start in commit.starts))

    def send(self, message: Message) -> Message:
        """See Tracer: a call or a signal carries the span in which it is sent."""
        here = _here()
        if here is None or message.type not in LETTERS:
            return message
        told = {} if message.sender is None else json.decode(message.sender)
        text = told.get(carried.FIELD) or "{}"
        if not carried.is_open(text) or TRACEPARENT in (given := carried.read(text)):
            return message
        try:
            told[carried.FIELD] = _with(here, given)
        except PayloadTooLarge:
            return message
        return replace(message, sender=json.encode(told))

    def enter(self, attempt: Callable[[], Attempt]) -> None:
        """See Tracer: the spans that a step makes itself are children of its attempt's span."""
        ATTEMPT.set(attempt)
        run: AttemptRun = attempt.__self__  # type: ignore[attr-defined]  # it is the method of an attempt run
        process = run.instance.process
        parent = self._parent_of(process)
        id = self._ids.of_attempt(process.id, process.run, run.ask.name, run.ask.place, run.number)
        span = NonRecordingSpan(_span_context(parent._replace(span=id)))
        otel_context.attach(trace.set_span_in_context(span))

    # -- what is heard -------------------------------------------------------------------------------------------

    def attempted(self, attempt: AttemptRun, seconds: float, failed: bool, time: StoreTime) -> None:
        """See Observer: its times are kept until it is written."""
        process, ask, now = attempt.instance.process, attempt.ask, time.now()
        took = Took(attempt.number, now - round(seconds * 1_000_000), now)
        _keep(self._took, (process.id, process.run, ask.name, ask.place), took)

    def watch(self, ready: Ready, monotonic: Callable[[], float]) -> None:
        """See Observer: a turn has no span."""

    def timed_out(self, attempt: AttemptRun) -> None:
        """See Observer: it ends as a failure."""

    def written(self, records: Records, answers: WrittenAnswers) -> None:
        """See Observer."""
        for record, answer in zip(records, answers, strict=True):
            if isinstance(record, Commit) and answer.verdict is APPLIED:
                self._written(record.after, record.events, answer.now)
            elif isinstance(record, Start) and answer.verdict is CREATED and record.process.opened_at is not None:
                self._written(record.process, record.events, answer.now)

    def _written(self, process: Process, events: Sequence[Event], now: int) -> None:
        for event in events:
            type = event.type
            if type is EventType.STEP_COMPLETED or type is EventType.STEP_FAILED:
                if event.message is None:
                    self._attempt(process, event, event.payload if type is EventType.STEP_FAILED else None)
            elif type is EventType.ATTEMPT_FAILED:
                self._attempt(process, event, decode_attempt(event.payload or b"{}").failure.encode())
            elif type is EventType.MESSAGE_RECEIVED and event.message is not None:
                _keep(self._calls, (process.id, event.message), event.at)
            elif type in ANSWERS:
                self._call(process, event, now)
            elif type is EventType.REVIVED:
                self._span(
                    process, "revived", self._ids.of(process.id, process.run, f"revived {event.number}"), now, now
                )
            elif type is EventType.RUN_OPENED and process.run > 1:
                self._run(process, process.run - 1, Status.COMPLETED, now)
            elif type in _ENDS:
                self._run(process, process.run, process.status, now)
        if process.status is RUNNING:
            _keep(self._runs, (process.id, process.run), process.opened_at or process.created_at)

    # -- spans ---------------------------------------------------------------------------------------------------

    def _attempt(self, process: Process, event: Event, failure: bytes | None) -> None:
        key = process.id, process.run, event.name, event.place
        took = self._took.pop(key, None) or Took(1, event.at, event.at)
        id = self._ids.of_attempt(*key, took.number)
        told = {"perdure.step": event.name, "perdure.place": event.place, "perdure.attempt": took.number}
        self._span(process, event.name, id, took.began, took.ended, told, failure)

    def _call(self, process: Process, event: Event, now: int) -> None:
        name, _, number = event.name.rpartition(":")
        began = self._calls.pop((process.id, int(number)), event.at)
        id = self._ids.of(process.id, process.run, f"call {event.name}")
        failure = event.payload if event.type is EventType.CALL_REFUSED else None
        self._span(process, f"call {name}", id, began, now, {"perdure.call": name}, failure, SpanKind.SERVER)

    def _run(self, process: Process, run: int, status: Status, now: int) -> None:
        """The span of a run that is over; that of a broken process which a person ends is made already."""
        key = process.id, run
        began = self._runs.pop(key, None)
        if key in self._ended:
            return
        _keep(self._ended, key, None)
        if began is None:
            began = now if run != process.run else process.opened_at or process.created_at
        parent = self._parent_of(process)
        task = is_task(process.kind)
        told = {"perdure.status": status.value, "perdure.run": run}
        failure = None if status in (Status.COMPLETED, Status.CANCELLED) else process.error
        name = f"queue {process.kind[1:]}" if task else process.kind
        kind = SpanKind.CONSUMER if task else SpanKind.INTERNAL
        self._make(process, name, self._ids.of_run(*key), began, now, parent, told, failure, kind)

    def _span(
        self, process: Process, name: str, id: int, began: int, ended: int, told: dict[str, Any] | None = None,
        failure: bytes | None = None, kind: SpanKind = SpanKind.INTERNAL,
    ) -> None:  # fmt: skip
        """A span in the present run of a process."""
        parent = self._parent_of(process)._replace(span=self._ids.of_run(process.id, process.run))
        self._make(process, name, id, began, ended, parent, told or {}, failure, kind)

    def _make(
        self, process: Process, name: str, id: int, began: int, ended: int, parent: TraceParent,
        told: dict[str, Any], failure: bytes | None, kind: SpanKind,
    ) -> None:  # fmt: skip
        self._ids.expect(parent.trace, id)
        context = None
        if parent.span:
            context = trace.set_span_in_context(NonRecordingSpan(_span_context(parent)), otel_context.Context())
        attributes = {"perdure.process_id": id_text(process.id), "perdure.kind": process.kind, **told}
        if process.key is not None:
            attributes["perdure.key"] = process.key
        try:
            span = self._tracer.start_span(
                name, context or otel_context.Context(), kind, attributes, start_time=1000 * began
            )
            if failure is not None:
                error = Failure.shown(failure)
                span.set_status(SpanStatus(StatusCode.ERROR, error.type))
                span.set_attribute("error.type", error.type)  # its message may hold what is confidential
            span.end(1000 * max(began, ended))
        except Exception as wrong:  # a sampler's or a span processor's: what is told of is written already
            self._ids.forget()
            self._failed(wrong)

    def _parent_of(self, process: Process) -> TraceParent:
        """The trace of a process, and the span from which it was started; 0 if it was from none."""
        text = carried.of_attributes(process.attributes)
        if text and carried.is_open(text):
            found = TraceParent.read(carried.read(text).get(TRACEPARENT))
            if found is not None:
                return found
        own = trace_of(process.id)
        return TraceParent(own, 0, self._sampled(own, process.kind))

    def _sampled(self, trace_id: int, name: str) -> bool:
        try:
            decision: Any = self._sampler.should_sample(None, trace_id, name).decision
        except Exception as error:
            self._failed(error)
            return False
        return bool(decision.is_sampled())

    def _failed(self, error: Exception) -> None:
        """Log an error of a sampler or of a span processor, the first one of each class."""
        if type(error) not in self._failures:
            self._failures.add(type(error))
            log.error("spans could not be made; look at the provider's sampler and span processors", exc_info=error)


def _span_context(parent: TraceParent) -> SpanContext:
    return SpanContext(parent.trace, parent.span, True, TraceFlags(1 if parent.sampled else 0))


def _here() -> TraceParent | None:
    """The span in which the calling code is, if it is in one."""
    here = trace.get_current_span().get_span_context()
    return TraceParent(here.trace_id, here.span_id, here.trace_flags.sampled) if here.is_valid else None


def _with(here: TraceParent, given: Mapping[str, Any]) -> str:
    """The text of a context with this span, unless it names another one; raises InvalidInput or PayloadTooLarge."""
    return carried.checked(given if TRACEPARENT in given else {**given, TRACEPARENT: here.text})


def _in_trace(start: Start, parent: TraceParent) -> Start:
    """The start of a child, with its parent's span in its context; it stays as it is if that is sealed, or full."""
    text = carried.of_attributes(start.process.attributes) or "{}"
    if not carried.is_open(text):
        return start
    try:
        context = carried.checked({**carried.read(text), TRACEPARENT: parent.text})
        return replace(start, process=carried.carrying(start.process, context))
    except PayloadTooLarge:
        return start


K = TypeVar("K")
V = TypeVar("V")


def _keep(kept: dict[K, V], key: K, value: V) -> None:
    """Remember something until it is asked for; of too much the oldest is forgotten, and its span is shorter then."""
    if len(kept) >= limits.OPEN_SPAN_RECORDS:
        del kept[next(iter(kept))]
    kept[key] = value
