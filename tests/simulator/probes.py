"""Probes: things worth testing that have happened in a history, told by counters, logs and records of the engine.

A probe that is never reached in a long run fails it: what does not happen is not tested, whatever the figures say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import json

from perdure.kernel import undo
from perdure.kernel.child import begun, is_task
from perdure.kernel.event import RESULTS, Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import LETTERS, MessageType
from perdure.kernel.process import Status
from perdure.kernel.run import CONTINUED, opening_of
from perdure.kernel.soundness import LAST
from perdure.testing.simulator import Cluster
from tests.simulator.evidence import Evidence, program_of
from tests.simulator.program import Do, nodes

LONG = 15
"""Events from which on a replay counts as a long one."""

COUNTED = {
    "a late answer was refused": "commits_refused",
    "a locked row was set aside": "commits_busy",
    "a timer that was not due yet was set aside": "commits_early",
    "an end had to read first": "commits_read_first",
    "a batch was sent again": "commits_resent",
    "a duplicate start was answered exists": "starts_existing",
    "a lapsed lease was taken over": "takeovers",
    "a worker was found dead by its lock": "workers_dead",
    "a worker was found silent by its beats": "workers_silent",
    "an orphan was revived": "orphans_freed",
    "a suspect ran alone": "suspects_alone",
    "an ended incarnation was refused and went on under a new id": "incarnations_renewed",
    "a worker let go before its lease ended": "leases_lost",
    "a lease lapsed that nobody here could take over": "leases_lapsed",
    "the system refused a worker something": "shortages",
    "an attempt was put off for a shortage": "attempts_put_off",
    "a process was handed back for a shortage": "processes_put_off",
    "a result came after its attempt had ended": "late_results",
    "an attempt ran over its deadline": "step_timeouts",
    "an undo had no attempt left": "undos_spent",
    "a process ran over its deadline": "processes_expired",
    "a reminder of a row at rest was looked at": "processes_idle",
    "work that nobody hosts was reported": "processes_unhosted",
    "a store outage was survived": "store_errors",
    "a process was parked as broken": "broken",
    "a process went on from memory": "cache_hits",
}
"""Probes that a counter of some engine tells of."""


def counted(cluster: Cluster) -> Iterator[str]:
    """The probes that the engines' counters tell of, and the faults of the server."""
    total: Counter[str] = Counter()
    for engine in cluster.engines:
        total.update(engine.telemetry.counters)
    for probe, counter in COUNTED.items():
        if total[counter]:
            yield probe
    faults = cluster.server.faults
    if total["commits_resent"] and faults["failed after"]:
        yield "an unknown outcome was resolved as applied"
    if total["commits_resent"] and faults["failed before"]:
        yield "an unknown outcome was resolved as absent"


# -- what one history tells --------------------------------------------------------------------------------------------

Events = Sequence[Event]
Told = Callable[[Evidence, Events], bool]
ET = EventType


def _then(first: EventType, second: EventType) -> Told:
    """One kind of event, and later in the same run the other."""

    def told(evidence: Evidence, events: Events) -> bool:
        places = [number for number, event in enumerate(events) if event.type is first]
        return bool(places) and any(event.type is second for event in events[places[0] :])

    return told


def _has(type: EventType) -> Told:
    return lambda evidence, events: any(event.type is type for event in events)


def _long_replay(evidence: Evidence, events: Events) -> bool:
    return any(event.type is ET.REVIVED and event.number > LONG for event in events)


def _deep_revival(evidence: Evidence, events: Events) -> bool:
    return sum(event.type is ET.REVIVED for event in events) > 1


def _cancel_in_undo(evidence: Evidence, events: Events) -> bool:
    undone = [number for number, event in enumerate(events) if undo.undoes(event.place) and event.type in RESULTS]
    cancels = {m.number for m in evidence.messages if m.type is MessageType.CANCEL}
    return bool(undone) and any(event.message in cancels for event in events[undone[0] :])


def _revived_in_undo(evidence: Evidence, events: Events) -> bool:
    undone = [number for number, event in enumerate(events) if undo.undoes(event.place) and event.type in RESULTS]
    return bool(undone) and any(event.type is ET.REVIVED for event in events[undone[0] :])


def _unread(evidence: Evidence, events: Events) -> bool:
    opening = opening_of(events)
    heard = [message for message in evidence.messages if message.type in LETTERS and message.number <= opening.seen]
    return opening.done == CONTINUED and any(
        (one.consumed_run or evidence.row.run) >= evidence.row.run for one in heard
    )


def _continued(evidence: Evidence, events: Events) -> bool:
    return opening_of(events).done == CONTINUED


def _misfit(evidence: Evidence, events: Events) -> bool:
    broken = (event for event in events if event.type is ET.BROKEN)
    return any(Failure.shown(event.payload or b"{}").type == "HistoryMisfit" for event in broken)


def _poison(evidence: Evidence, events: Events) -> bool:
    broken = (event for event in events if event.type is ET.BROKEN)
    return any(Failure.shown(event.payload or b"{}").type == "Poison" for event in broken)


def _kept_attempts(evidence: Evidence, events: Events) -> bool:
    """A retry history that survived a revival: an attempt failed before it, and the same step ended after it."""
    failed: set[tuple[str, str]] = set()
    kept: set[tuple[str, str]] = set()
    for event in events:
        slot = event.name, event.place
        if event.type is ET.ATTEMPT_FAILED:
            failed.add(slot)
        elif event.type is ET.REVIVED:
            kept |= failed
        elif event.type in RESULTS and slot in kept:
            return True
    return False


def _started_then_revived(evidence: Evidence, events: Events) -> bool:
    """A child was started, its parent revived, and its answer received: nobody started it twice."""
    out: set[tuple[str, str]] = set()
    revived = False
    for event in events:
        if event.type is ET.CHILD_STARTED:
            out.add((event.name, event.place))
        revived = revived or (event.type is ET.REVIVED and bool(out))
        if revived and event.type in RESULTS and event.message is not None and (event.name, event.place) in out:
            return True
    return False


def _abandoned(evidence: Evidence, events: Events) -> bool:
    return any(event.type is ET.CHILD_STARTED and begun(event).abandoned for event in events)


def _several_timers(evidence: Evidence, events: Events) -> bool:
    fired = [event for event in events if event.type is ET.TIMER_FIRED]
    return any(one.turn == other.turn for one, other in pairwise(fired))


def _promised_after_revival(evidence: Evidence, events: Events) -> bool:
    """A step that was given another one's promised result ended after a revival."""
    if is_task(evidence.row.kind):
        return False
    own = nodes(program_of(evidence.row).body, children=False)
    given = {json.encode(node.label) for node in own if isinstance(node, Do) and node.after}
    revived = [number for number, event in enumerate(events) if event.type is ET.REVIVED]
    return bool(revived) and any(event.payload in given for event in events[revived[0] :] if event.type in RESULTS)


TOLD: Mapping[str, Told] = {
    "timers fired after a takeover": _then(ET.REVIVED, ET.TIMER_FIRED),
    "a message was received after a revival": _then(ET.REVIVED, ET.MESSAGE_RECEIVED),
    "a step ended after a revival": _then(ET.REVIVED, ET.STEP_COMPLETED),
    "a step was given a promised result after a revival": _promised_after_revival,
    "a long history was replayed": _long_replay,
    "a process was revived twice in a run": _deep_revival,
    "failed attempts were kept over a revival": _kept_attempts,
    "a parent was revived while its child ran": _started_then_revived,
    "several timers fired in one turn": _several_timers,
    "a child's answer was ignored": _has(ET.ANSWER_IGNORED),
    "a child was abandoned": _abandoned,
    "a signal was told to another process": _has(ET.SIGNAL_SENT),
    "a cancel came during undoing": _cancel_in_undo,
    "a process was revived while undoing": _revived_in_undo,
    "a process continued as new": _continued,
    "a process continued as new with unread messages": _unread,
    "a version misfit was parked": _misfit,
    "a poison process was parked": _poison,
    "a broken process was retried": _then(ET.BROKEN, ET.RESUMED),
    "a held process was resumed": _then(ET.HELD, ET.RESUMED),
    "a patch was taken": _has(ET.PATCHED),
    "a result beside was kept by a restart": _has(ET.RESULT_KEPT),
    "a result was set by hand": _has(ET.SET_BY_HAND),
    "a step was skipped": _has(ET.SKIPPED),
    "a cancel had a deadline": _has(ET.DEADLINE_SET),
    "a process was terminated": _has(ET.TERMINATED),
    "a process was held after a revival": _then(ET.REVIVED, ET.HELD),
}
"""Probes that the events of one run tell of."""


def told(everything: Mapping[bytes, Evidence]) -> Iterator[str]:
    """The probes that the records tell of."""
    for evidence in everything.values():
        for events in evidence.runs.values():
            yield from (probe for probe, holds in TOLD.items() if holds(evidence, events))
        yield from _between_runs(evidence)
        if is_task(evidence.row.kind) and evidence.row.status is Status.CANCELLED:
            yield "a queued step was taken back"


BETWEEN = (
    "a restart came while it was in flight", "a failed process was retried", "a process was restarted from a step",
    "a queued step was taken back", "an unknown outcome was resolved as applied",
    "an unknown outcome was resolved as absent", "a command was refused", "a start with another input was refused",
    "a process in hand was held", "a queue was limited", "a loop was blocked for ever",
)  # fmt: skip
"""Probes that are told otherwise: by a person, by the server, by what stands between two runs."""


def _between_runs(evidence: Evidence) -> Iterator[str]:
    for run, events in evidence.runs.items():
        opening = opening_of(events)
        before = evidence.runs.get(run - 1, [])
        if run == 1 or opening.done == CONTINUED:
            continue
        if opening.done == "retried":
            yield "a failed process was retried"
        elif opening.done.startswith("restarted at"):
            yield "a process was restarted from a step"
        if before and before[-1].type not in LAST:
            yield "a restart came while it was in flight"


ALL = frozenset((*COUNTED, *TOLD, *BETWEEN))
"""Every probe; a long run must reach each."""


def reached(everything: Mapping[bytes, Evidence], cluster: Cluster) -> set[str]:
    """The probes that a history has reached."""
    return {*counted(cluster), *told(everything)}
