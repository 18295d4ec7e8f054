"""A rehearsal of one process: its history is replayed against the code at hand; nothing is run, sent or written.

It is the replay of a claim, with the same checks before it, so that it cannot judge otherwise than a worker would. The
process is in memory only as long as it lasts.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from msgspec import Struct

from perdure.authoring.library import with_library_kind
from perdure.authoring.registry import Registry
from perdure.authoring.step_policies import StepPolicies
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.integrity import flaw
from perdure.kernel.message import LETTERS, Message
from perdure.kernel.process import Process, Status
from perdure.kernel.stored import first_trouble
from perdure.runtime.instance import Instance
from perdure.runtime.loops import loop_of
from perdure.runtime.replay import Replay
from perdure.turns.renewal import Broken


class Unfit(Struct, frozen=True):
    """Why a process does not fit the code: ``type`` and ``message`` of the error, and at which ``event``.

    ``event`` is the number of the last event that the code was given, 0 if it was given none. ``step`` is the step,
    timer or message of that event.
    """

    type: str
    message: str
    event: int = 0
    step: str = ""


def rehearse(
    registry: Registry,
    policies: StepPolicies,
    process: Process,
    events: Sequence[Event],
    messages: Sequence[Message],
    version: str | None = None,
) -> Generator[None, None, Unfit | None]:
    """Replay the process as a worker that claims it would; the answer says why it does not fit, if it does not.

    A long history is replayed in portions, after each of which this yields. ``messages`` are those that the run needs.
    With a ``version`` the code of that version is taken, whichever the process has.
    """
    wanted = process.code if version is None else version
    code = with_library_kind(registry, process.kind).versions.get((process.kind, wanted))
    if code is None:
        return _not_hosted(registry, process, version)
    trouble = _trouble(process, events, messages)
    if trouble is not None:
        return Unfit(type(trouble).__name__, str(trouble))
    backlog = any(one.consumed_by is None and one.number <= process.seen and one.type in LETTERS for one in messages)
    instance = Instance(process, code, loop_of(process, code, policies, process.seen if backlog else 0), 0.0, events)
    replay = _Rehearsal(instance, events, messages)
    try:
        yield from replay.run()
        return _ended_early(instance, events)
    except Exception as error:
        last = replay.last
        step = "" if last is None else f"{last.name}:{last.place}" if last.place else last.name
        return Unfit(type(error).__name__, str(error), 0 if last is None else last.number, step)
    finally:
        instance.drop()


class _Rehearsal(Replay):
    """A replay that knows which event it has delivered last."""

    def __init__(self, instance: Instance, events: Sequence[Event], messages: Sequence[Message]) -> None:
        super().__init__(instance, events, messages)
        self.last: Event | None = None

    def _deliver(self, event: Event) -> None:
        self.last = event
        super()._deliver(event)


def _trouble(process: Process, events: Sequence[Event], messages: Sequence[Message]) -> Exception | None:
    payloads = (*(event.payload for event in events), *(message.payload for message in messages))
    trouble = first_trouble((process.input, process.attributes, process.state, *payloads))
    return trouble or flaw(process, events, messages)


def _not_hosted(registry: Registry, process: Process, version: str | None) -> Unfit:
    wanted = process.code if version is None else version
    known = sorted(code for kind, code in registry.versions if kind == process.kind)
    there = f"its versions here are {', '.join(map(repr, known))}" if known else "no such workflow is here"
    return Unfit("NotHosted", f"the code at hand has no version {wanted!r} of {process.kind}: {there}")


def _ended_early(instance: Instance, events: Sequence[Event]) -> Unfit | None:
    """What is wrong with where the code stands at the end of the history."""
    loop, process = instance.loop, instance.process
    last = events[-1] if events else None
    number = 0 if last is None else last.number
    error = loop.failure()
    if not process.final and loop.finished and error is not None:
        failure = error.failure if isinstance(error, Broken) else Failure.of(error)
        if process.status is Status.BROKEN and _same(failure, process.error):
            return None  # the history has this end: it is broken by it
        return Unfit(failure.type, f"the code ends here with this error: {failure.message}".rstrip(": "), number)
    if process.status is Status.COMPLETED and last is not None and last.type is EventType.COMPLETED:
        if not loop.finished:
            return Unfit("HistoryMisfit", f"the history has ended, and the code waits for {loop.awaiting()}", number)
        if error is not None:
            return Unfit("HistoryMisfit", f"the history has ended well, and the code fails: {error!r:.300}", number)
    return None


def _same(failure: Failure, recorded: bytes | None) -> bool:
    before = None if recorded is None else Failure.shown(recorded)
    return before is not None and (before.type, before.message) == (failure.type, failure.message)
