"""The conditions of rules that alert: each reads what is so now, as facts of one subject each.

No fact holds the text of an error, which may be sealed in the database: its class and its fingerprint say enough.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from perdure import limits
from perdure.authoring.operation.machine import KIND as OPERATION
from perdure.authoring.operation.plan import OperationStatus
from perdure.client.finding.failures import FAILED
from perdure.client.finding.fields import Candidate
from perdure.client.finding.finder import Finder
from perdure.client.operation_row import known_outcome, plan_of
from perdure.client.past_orders import every_history
from perdure.client.polling import unpolled_queues
from perdure.client.whole_rows import whole
from perdure.clock import SECOND, microseconds
from perdure.kernel import outage
from perdure.kernel.alerting import SAMPLES, AlertCondition, AlertFact, AlertLook, AlertPlan
from perdure.kernel.breaker import Circuit
from perdure.kernel.event import EDITS, HistoryWanted
from perdure.kernel.names import id_text
from perdure.kernel.note import Note
from perdure.kernel.outage import OutageState
from perdure.kernel.process import UNFINISHED, Process, Status
from perdure.kernel.sweep_pass import Passes, sweep_of
from perdure.store.base import Search, Store

EDITED = 20
"""So many events are read of a process that people have changed since it failed."""


@dataclass(frozen=True, slots=True)
class AlertQuestion:
    """What a rule asks at a look: everything that came after ``since`` is new to it, by the store's clock.

    It was added at ``added_at``. What has changed after ``settled`` counts at the next look, once all can see it.
    """

    store: Store
    plan: AlertPlan
    since: int
    added_at: int
    now: int

    @property
    def settled(self) -> int:
        """Up to when what has changed is visible."""
        return self.now - microseconds(limits.ALERT_SETTLED_SECONDS)


async def look(asked: AlertQuestion) -> AlertLook:
    """Look at the condition of a rule. Raises InvalidInput, StoreError."""
    facts = await _CONDITIONS[asked.plan.when](asked)
    lasting = 0 if asked.plan.when in _MEASURED else asked.plan.lasting
    return AlertLook(facts, asked.settled, lasting)


class _Group:
    """Processes that one fact is made of."""

    def __init__(self) -> None:
        self.count = self.fresh = 0
        self.sample: list[str] = []

    def add(self, row: Process, *, fresh: bool = False) -> None:
        self.count += 1
        self.fresh += fresh
        if len(self.sample) < SAMPLES:
            self.sample.append(row.key or id_text(row.id))

    def fact(self, subject: str, text: str) -> AlertFact:
        return AlertFact(subject, self.count, text, self.fresh, tuple(self.sample))


async def _processes(asked: AlertQuestion, statuses: tuple[Status, ...]) -> AsyncIterator[list[Candidate]]:
    """The processes in these statuses that the rule's query fits, queued steps too."""
    search = Search(statuses=statuses, tasks=True)
    async for page in Finder(asked.store, search, asked.plan.where).every():
        yield page


async def _ended(asked: AlertQuestion, page: Sequence[Candidate], after: int) -> dict[bytes, int]:
    """When these processes have come to their statuses, of those whose rows have changed ``after`` a time.

    A row changes too if a person sets the priority of a broken process, for one: its last events tell that from a
    failure.
    """
    rows = [one.row for one in page if one.row.changed_at > after]
    ended = {row.id: row.changed_at for row in rows}
    last = {row.id: HistoryWanted(row.id, row.run, row.events, row.events) for row in rows if row.events}
    async for events in every_history(asked.store, [*last.values()]):
        for id, found in events.items():
            if not found or found[-1].type not in EDITS:
                del last[id]
    wants = [replace(one, first=max(1, one.last - EDITED)) for one in last.values()]
    async for events in every_history(asked.store, wants):
        for id, found in events.items():
            while len(found) > 1 and found[-1].type in EDITS:
                found.pop()
            # The event of the failure tells the time of its turn, which may be older than the failure.
            ended[id] = max((event.at for event in found), default=0)
    return ended


async def _broken(asked: AlertQuestion) -> list[AlertFact]:
    """Kinds of which so many are broken."""
    groups: dict[str, _Group] = {}
    async for page in _processes(asked, (Status.BROKEN,)):
        ended = await _ended(asked, page, asked.since)
        for one in page:
            if (at := ended.get(one.row.id, 0)) <= asked.settled:
                groups.setdefault(str(one.row.kind), _Group()).add(one.row, fresh=at > asked.since)
    return [
        group.fact(kind, f"{_many(group.count)} of {kind} {_is(group.count)} broken")
        for kind, group in groups.items()
        if group.count >= asked.plan.at_least
    ]


async def _overdue(asked: AlertQuestion) -> list[AlertFact]:
    """Kinds of which so many are due, and nobody has looked at them for so long."""
    groups: dict[str, _Group] = {}
    async for page in _processes(asked, UNFINISHED):
        for one in page:
            if one.overdue is not None and (at := one.now - one.overdue + asked.plan.lasting) <= asked.settled:
                groups.setdefault(str(one.row.kind), _Group()).add(one.row, fresh=at > asked.since)
    waited = _span(asked.plan.lasting)
    return [
        group.fact(kind, f"{_many(group.count)} of {kind} {_is(group.count)} overdue by more than {waited}")
        for kind, group in groups.items()
        if group.count >= asked.plan.at_least
    ]


async def _unpolled(asked: AlertQuestion) -> list[AlertFact]:
    """Queues in which steps wait that no live worker serves."""
    queues = sorted(await unpolled_queues(asked.store))
    return [AlertFact(name, 1, f"steps wait in queue {name}, and no live worker serves them") for name in queues]


async def _failures(asked: AlertQuestion) -> list[AlertFact]:
    """Fingerprints with which so many have failed, or are broken, within so long."""
    groups: dict[str, _Group] = {}
    told: dict[str, str] = {}
    first = asked.now - asked.plan.within
    async for page in _processes(asked, FAILED):
        ended = await _ended(asked, page, first)
        for one in page:
            if first < (at := ended.get(one.row.id, 0)) <= asked.settled and one.cause is not None:
                groups.setdefault(one.cause.fingerprint, _Group()).add(one.row, fresh=at > asked.since)
                step = f" in step {one.cause.step}" if one.cause.step else ""
                told[one.cause.fingerprint] = f"{one.row.kind} by {one.cause.type}{step}"
    within = _span(asked.plan.within)
    return [
        group.fact(mark, f"{_many(group.count)} of {told[mark]} failed within {within} (fingerprint {mark})")
        for mark, group in groups.items()
        if group.count >= asked.plan.at_least
    ]


async def _operations(store: Store) -> AsyncIterator[tuple[Process, OperationStatus | None]]:
    search = Search(kind=OPERATION, limit=limits.LIST_ROWS)
    while rows := await whole(store, await store.search(search)):
        for row in rows:
            yield row, known_outcome(row)
        search = Search(kind=OPERATION, limit=limits.LIST_ROWS, before_id=rows[-1].id)


async def _operation_finished(asked: AlertQuestion) -> list[AlertFact]:
    """Operations that have ended since the last look."""
    facts = []
    async for row, outcome in _operations(asked.store):
        if row.final and max(asked.since, asked.added_at) < row.changed_at <= asked.settled:
            facts.append(_of_operation(row, outcome or OperationStatus(row.status.value)))
    return facts


async def _operation_relapsed(asked: AlertQuestion) -> list[AlertFact]:
    """Operations of which so many processes are back where they were, as long as they go on or have just ended.

    An operation that has ended before the last look is known: it must not take the place of one that is new.
    """
    facts = []
    async for row, outcome in _operations(asked.store):
        since = max(asked.since, asked.added_at) if row.final else asked.added_at
        if outcome is not None and outcome.relapsed >= asked.plan.at_least and row.changed_at > since:
            facts.append(_of_operation(row, outcome))
    return facts


def _of_operation(row: Process, outcome: OperationStatus) -> AlertFact:
    id = id_text(row.id)
    said = f"is {outcome.phase}: {outcome.done:,} done, {outcome.relapsed:,} relapsed"
    return AlertFact(id, outcome.done, f"operation {id} ({plan_of(row).verb}) {said}", once=True)


async def _sweep_silent(asked: AlertQuestion) -> list[AlertFact]:
    """Sweeps of which workers have told that they do not pass; and all of them, if none has passed for so long.

    Nobody has looked either where the database was away or no worker was there: that is no silence of the sweeps, which
    pass before the next look.
    """
    passes = {name: note.read(Passes) for note in await asked.store.records(Note) if (name := sweep_of(note))}
    silent = [name for name, one in passes.items() if one.alarmed_at > one.at]
    facts = [AlertFact(name, 1, f"the sweep {name} does not pass: what it would find stays stuck") for name in silent]
    last = max([asked.added_at, *(one.at for one in passes.values())])
    if asked.now - last > asked.plan.lasting and asked.settled - asked.since <= asked.plan.lasting + asked.plan.every:
        text = f"no sweep has passed for {_span(asked.now - last)}: nothing that is stuck is found"
        facts.append(AlertFact("all sweeps", 1, text))
    return facts


async def _outage(asked: AlertQuestion) -> list[AlertFact]:
    """Kinds that are held."""
    notes = [note for note in await asked.store.records(Note) if note.name.startswith(outage.PREFIX)]
    states = {note.name.removeprefix(outage.PREFIX): note.read(OutageState) for note in notes}
    held = {kind: state for kind, state in states.items() if state.held}
    return [AlertFact(kind, 1, f"{kind} is held as an outage: {state.circuit.reason}") for kind, state in held.items()]


async def _breaker_open(asked: AlertQuestion) -> list[AlertFact]:
    """Breakers that are open or half-open. One that goes from one to the other is still the same fact."""
    circuits = await asked.store.records(Circuit)
    return [AlertFact(one.name, 1, one.text()) for one in circuits if not one.closed]


_CONDITIONS: Mapping[AlertCondition, Callable[[AlertQuestion], Awaitable[list[AlertFact]]]] = {
    AlertCondition.BROKEN: _broken,
    AlertCondition.OVERDUE: _overdue,
    AlertCondition.UNPOLLED: _unpolled,
    AlertCondition.FAILURES: _failures,
    AlertCondition.OPERATION_FINISHED: _operation_finished,
    AlertCondition.OPERATION_RELAPSED: _operation_relapsed,
    AlertCondition.SWEEP_SILENT: _sweep_silent,
    AlertCondition.OUTAGE: _outage,
    AlertCondition.BREAKER_OPEN: _breaker_open,
}
_MEASURED = (AlertCondition.OVERDUE, AlertCondition.SWEEP_SILENT)
"""The conditions that know themselves for how long something is so, whenever the rule has seen it first."""


def _many(count: int) -> str:
    return f"{count:,} process{'es' * (count != 1)}"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _span(duration: int) -> str:
    """Microseconds in the largest unit that fits: ``2 h``, ``10 min``, ``45 s``."""
    for unit, size in (("h", 3600), ("min", 60)):
        if duration >= 2 * size * SECOND or duration == size * SECOND:
            return f"{duration / (size * SECOND):.3g} {unit}"
    return f"{duration / SECOND:.3g} s"


def subjects(facts: Iterable[AlertFact]) -> list[str]:
    """What the facts say, those first that concern most processes."""
    return [fact.text for fact in sorted(facts, key=lambda one: (-one.count, one.subject))]
