"""A trace: every step, queued step and child of a process, in the order in which they ended, over all its runs.

It is read from the events. Of a step that runs in the process itself they have the end, the digest of its arguments,
and the begin only if it was tried more than once or runs at most once. Of one that keeps its arguments they have these,
from the moment in which it was asked for. Of a queued step and of a child they have both ends; its own row, as long as
it is kept, has the arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from perdure.client.parts import ClientParts
from perdure.client.view import instant, readable
from perdure.errors import PerdureError
from perdure.kernel.child import begun, is_task
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.kernel.retry import decode_attempt
from perdure.kernel.run import opening_of
from perdure.kernel.stored import under_way
from perdure.kernel.undo import name_and_place
from perdure.limits import LIST_ROWS, TRACE_EVENTS
from perdure.store.base import Search

_TYPES = (
    EventType.STEP_COMPLETED, EventType.STEP_FAILED, EventType.ATTEMPT_FAILED, EventType.ATTEMPT_BEGUN,
    EventType.CHILD_STARTED, EventType.RUN_OPENED, EventType.ARGUMENTS_KEPT,
)  # fmt: skip
_ENDS = {EventType.STEP_COMPLETED: "completed", EventType.STEP_FAILED: "failed"}


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One step, queued step (``task``) or ``child``, as ``what`` says; what is not known is None. Times are in UTC.

    ``status`` is ``completed``, ``failed``, ``open``, or ``left`` if its run has ended without it. ``number`` is that
    of the last event that tells of it, ``process`` the id of the task or child, ``worker`` who has it under way.
    ``arguments`` are those of tasks and children whose rows are kept, and of steps that keep them; those of other steps
    ``digest`` names, in hexadecimal.
    """

    run: int
    number: int
    what: str
    name: str
    place: str
    status: str = "open"
    began: datetime | None = None
    ended: datetime | None = None
    attempts: int | None = None
    worker: str | None = None
    process: str | None = None
    digest: str | None = None
    arguments: Any = None
    result: Any = None
    error: Failure | None = None


async def traced(parts: ClientParts, id: bytes) -> list[TracedStep]:
    """The trace of a process, from the first run that is kept, TRACE_EVENTS events at most; raises ProcessNotFound."""
    row = await parts.row(id)
    events: list[tuple[int, Event]] = []
    for run in range(1, row.run + 1):
        while len(events) < TRACE_EVENTS:
            last = events[-1][1].number if events and events[-1][0] == run else 0
            page = await parts.store.history(id, run, after=last, limit=LIST_ROWS, types=_TYPES)
            events += ((run, event) for event in page)
            if len(page) < LIST_ROWS:
                break
    received = [event.message for _, event in events if event.message is not None]
    messages = await parts.store.messages([(id, min(received) - 1)]) if received else []
    letters = {message.number: message for message in messages}
    steps = [*told(events, letters, over=row.final)]
    steps = _under_way(row, steps)
    workers = {worker.id: worker.name for worker in await parts.store.workers()}
    if row.owner in workers:
        steps = [replace(one, worker=workers[row.owner]) if _is_here(one) else one for one in steps]
    return [_with_row(one, own, workers) for one, own in await _rows(parts, steps)]


def told(
    events: Iterable[tuple[int, Event]], letters: Mapping[int, Message], *, over: bool = False
) -> Iterator[TracedStep]:
    """What these events tell, each with its run; the process may be ``over``.

    A later run begins with copies of what it has kept of the one before: these were told of there.
    """
    run, copied = 0, 0
    open: dict[tuple[str, str], TracedStep] = {}
    before: dict[tuple[str, str], TracedStep] = {}
    for number, event in events:
        if number != run or event.number > copied:
            yield from (replace(one, status="left") for one in before.values())
            before = {}
        if number != run:
            copied = opening_of((event,)).kept + 1 if run and event.type is EventType.RUN_OPENED else 0
            run, before, open = number, open, {}
        if event.type is EventType.RUN_OPENED:
            continue
        slot = event.name, event.place
        known = before.pop(slot, None) if event.number <= copied else None
        one = known or open.pop(slot, None) or TracedStep(run, event.number, "step", *slot)
        one = _after(one, run, event, letters)
        if event.type not in _ENDS:
            open[slot] = one
        elif event.number > copied:
            yield one
    yield from (replace(one, status="left") for one in before.values())
    yield from (replace(one, status="left") if over else one for one in open.values())


def _after(one: TracedStep, run: int, event: Event, letters: Mapping[int, Message]) -> TracedStep:
    """What is known of a step after one more event."""
    at = instant(event.at)
    one = replace(one, run=run, number=event.number)
    try:
        if event.type is EventType.ATTEMPT_FAILED:
            tried = decode_attempt(event.payload or b"")
            began = one.began or instant(tried.since)
            return replace(one, attempts=tried.before + tried.attempt, began=began, error=tried.failure)
        if event.type is EventType.ATTEMPT_BEGUN:
            return replace(one, began=one.began or at)
        if event.type is EventType.ARGUMENTS_KEPT:
            digest = None if event.digest is None else event.digest.hex()
            return replace(one, began=one.began or at, arguments=readable(event.payload), digest=digest)
        if event.type is EventType.CHILD_STARTED:
            digest = None if event.digest is None else event.digest.hex()
            return replace(one, what="child", began=at, process=id_text(begun(event).id_bytes), digest=digest)
    except PerdureError:  # what is sealed must not hide the others
        return one
    letter = letters.get(event.message or 0)
    raw = event.payload if letter is None else letter.payload
    digest = one.digest if event.digest is None else event.digest.hex()
    one = replace(one, status=_ENDS[event.type], ended=at, digest=digest)
    if event.type is EventType.STEP_FAILED:
        failure = Failure.shown(raw or b"{}")
        return replace(one, error=failure, attempts=failure.attempts)
    here = one.process is None
    return replace(one, error=None, result=readable(raw), attempts=(one.attempts or 0) + 1 if here else None)


def _is_here(one: TracedStep) -> bool:
    """Whether a step is under way on the worker that holds its process."""
    return one.status == "open" and one.process is None


def _under_way(row: Process, steps: Sequence[TracedStep]) -> list[TracedStep]:
    """The steps, with what a beat has shown of those that are under way: of some no event tells yet."""
    open = {(one.name, one.place): place for place, one in enumerate(steps) if one.status == "open"}
    found = list(steps)
    try:
        shown = under_way(row.progress) if row.owner is not None else {}
    except PerdureError:
        return found
    for text, reported in shown.items():
        slot = name_and_place(text)
        if slot is None or not isinstance(reported, dict):
            continue
        began, attempt = instant(reported.get("since")), reported.get("attempt")
        if slot not in open:
            found.append(TracedStep(row.run, 0, "step", *slot, began=began, attempts=attempt))
        elif (known := found[open[slot]]).attempts is None:
            found[open[slot]] = replace(known, attempts=attempt)
    return found


async def _rows(parts: ClientParts, steps: Sequence[TracedStep]) -> list[tuple[TracedStep, Process | None]]:
    """The steps, each with the row of its task or child if that is kept."""
    ids = [bytes.fromhex(one.process.replace("-", "")) for one in steps if one.process is not None]
    rows: dict[str, Process] = {}
    for first in range(0, len(ids), LIST_ROWS):
        portion = tuple(ids[first : first + LIST_ROWS])
        rows |= {row.id.hex(): row for row in await parts.store.search(Search(ids=portion, limit=len(portion)))}
    return [(one, rows.get((one.process or "").replace("-", ""))) for one in steps]


def _with_row(one: TracedStep, row: Process | None, workers: Mapping[bytes, str]) -> TracedStep:
    """A task or child with what its own row tells."""
    if row is None:
        return one
    arguments = readable(row.input)
    if not is_task(row.kind):
        return replace(one, arguments=arguments, worker=workers.get(row.owner or b""))
    call = arguments.get("call") if isinstance(arguments, dict) else arguments
    return replace(one, what="task", arguments=call, worker=workers.get(row.owner or b""))
