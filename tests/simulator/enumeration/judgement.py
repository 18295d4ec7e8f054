"""The judgement of one passage: the rows, histories and effects are exactly those of its plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct, json
from msgspec.structs import replace

from perdure.authoring.schedule.machine import KIND as SCHEDULES
from perdure.authoring.task import task_of
from perdure.kernel.child import is_task
from perdure.kernel.event import DELIVERED, Event, EventType
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from tests.simulator.enumeration.plot import Ending, Plot
from tests.simulator.ledger import Effect


class Account(Struct):
    """What is stored of one process: its row, and the events of each of its runs."""

    row: Process
    runs: list[list[Event]]

    def ending(self) -> Ending:
        """How it has ended, in the words of a plot."""
        row = self.row
        value = None if row.result is None else json.decode(row.result)
        steps = tuple(event.name for event in self.runs[-1] if event.type is EventType.STEP_COMPLETED)
        return Ending(row.kind, row.status, value, row.run, steps)


def judged(plot: Plot, accounts: Sequence[Account], deeds: Sequence[Effect]) -> Iterator[str]:
    """All that is not as the plot says it must be."""
    yield from _done(plot, deeds)
    endings = [account.ending() for account in accounts]
    free = {ending.kind for ending in plot.endings if ending.steps is None}
    endings = [replace(ending, steps=None) if ending.kind in free else ending for ending in endings]
    if endings != plot.endings:
        yield f"the processes ended as {endings}, and not as {plot.endings}"
    keys = {deed.key for deed in deeds}
    for account in accounts:
        row = account.row
        if row.due_at is not None or row.owner is not None or row.awaiting is not None or row.inbox != row.seen:
            yield f"{row.kind} has ended, and awaits {row.awaiting}, with {row.seen} of {row.inbox} messages seen"
        for run, events in enumerate(account.runs, 1):
            for text in (*_twice(events), *_undone(row, events, keys)):
                yield f"{row.kind}, run {run}: {text}"


def _done(plot: Plot, deeds: Sequence[Effect]) -> Iterator[str]:
    """The steps have done what they were to do: all of it, nothing else, in its order, under so many keys."""
    keys: dict[str, set[str]] = {}
    for deed in deeds:
        keys.setdefault(deed.label, set()).add(deed.key)
    found = {label: len(under) for label, under in keys.items()}
    if list(found.items()) != list(plot.deeds.items()):
        yield f"what was done, and under how many keys: {found}, and not {plot.deeds}"


def _twice(events: Sequence[Event]) -> Iterator[str]:
    """Results, timers and messages that are recorded more than once."""
    slots = Counter((event.type, event.name, event.place, event.message) for event in events if event.type in DELIVERED)
    for (type, name, place, _), times in slots.items():
        if times > 1:
            yield f"{type.name} {name}:{place} is recorded {times} times"


def _undone(row: Process, events: Sequence[Event], keys: set[str]) -> Iterator[str]:
    """Results that nobody has given under the key of their step; those of children and queued steps are elsewhere.

    The steps of a schedule are the library's own, and say nothing of what they do: the processes that they start do.
    """
    if row.kind == SCHEDULES:
        return
    if is_task(row.kind):
        if row.status is Status.COMPLETED and task_of(row.input).key not in keys:
            yield f"{task_of(row.input).key} has a result, and nobody has done it"
        return
    for event in events:
        if event.type is EventType.STEP_COMPLETED and event.message is None:
            fits = f"/{event.name}:{event.place}"
            if not any(key.startswith(id_text(row.id)) and key.endswith(fits) for key in keys):
                yield f"{event.name}:{event.place} has a result, and nobody has done it"
