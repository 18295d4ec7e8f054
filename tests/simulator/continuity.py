"""Continuity: what must hold where a process goes on elsewhere, with other code, or in a new run (rules 17 to 23)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import json

from perdure.kernel import undo
from perdure.kernel.child import is_task
from perdure.kernel.event import EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import MessageType
from perdure.kernel.names import id_text
from perdure.kernel.process import Status
from perdure.kernel.run import CONTINUED, opening_of
from perdure.kernel.soundness import Finding
from tests.simulator.evidence import STEPS, Evidence, by_hand, ever_by_hand, fits, program_of
from tests.simulator.ledger import Ledger
from tests.simulator.program import Attempted, Do, Fork, Guard, Line, Node, Scope, Way, Within, nodes

AGAIN = "restarted at "
_ASKED = frozenset({EventType.ATTEMPT_FAILED, EventType.STEP_COMPLETED, EventType.STEP_FAILED})


def keys_name_the_run(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """A step of a new round or a restarted run bears a key of that run; one that goes on or is retried, the one it had.

    (Rule 21.) What a person has answered, nobody has done in this run; in another one it may have been done.
    """
    if is_task(evidence.row.kind):
        return
    id = id_text(evidence.row.id)
    for run, events in evidence.runs.items():
        answered = by_hand(events)
        for event in events[opening_of(events).kept + 1 if run > 1 else 0 :]:
            slot = event.name, event.place
            if event.type is not EventType.STEP_COMPLETED or event.name not in STEPS or slot in answered:
                continue
            first = _first_asked(evidence, run, slot)
            keys = {e.key for e in ledger.effects if e.kind == "done" and fits(e.key, evidence.row, id, event)}
            meant = f"{id}/{first}/{event.name}:{event.place}"
            if first is not None and keys and meant not in keys and not _of_another(ledger, meant, keys):
                yield f"run {run}: {event.name}:{event.place} was done under {sorted(keys)}, none is of run {first}"


def _of_another(ledger: Ledger, before: str, keys: set[str]) -> bool:
    """Whether what was tried under the key ``before`` was another step: code of another version had asked for it."""
    tried = {e.label for e in ledger.effects if e.key == before}
    return bool(tried) and tried.isdisjoint(e.label for e in ledger.effects if e.key in keys)


def _first_asked(evidence: Evidence, run: int, slot: tuple[str, str]) -> int | None:
    """The run in which a step was first asked for, if the records tell."""
    opening = opening_of(evidence.runs[run])
    if run == 1 or opening.done in ("restarted", CONTINUED, f"{AGAIN}{slot[0]}:{slot[1]}"):
        return run
    kept = evidence.runs[run][1 : opening.kept + 1]
    again = opening.done == "retried" and _tried_again(evidence, run) == slot and not _new_ways(evidence, run)
    if again or any((event.name, event.place) == slot and event.type in _ASKED for event in kept):
        return _first_asked(evidence, run - 1, slot)
    return None


def _new_ways(evidence: Evidence, run: int) -> bool:
    """A run goes ways that the one before it did not go: a step of the same name and place may be another one."""
    ways, before = ({e.place for e in evidence.runs[n] if e.type is EventType.PATCHED} for n in (run, run - 1))
    return bool(ways - before)


def _tried_again(evidence: Evidence, run: int) -> tuple[str, str] | None:
    """The failed step for which a run was opened: the one whose result a person gave with it, or the last that failed.

    A step that failed after the one with that result is asked for in a run of its own, if it is asked for at all.
    """
    failed = [(e.name, e.place) for e in evidence.runs[run - 1] if e.type is EventType.STEP_FAILED]
    first = opening_of(evidence.runs[run]).kept + 2
    given = by_hand([e for e in evidence.runs[run] if e.number == first]).intersection(failed)
    return next(iter(given), failed[-1] if failed else None)


def signals_are_sent_once(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """What the code says once is sent once, whoever goes on with it (result_once)."""
    for run, events in evidence.runs.items():
        sent = Counter(event.place for event in events if event.type is EventType.SIGNAL_SENT)
        for place, times in sent.items():
            if times > 1:
                yield f"run {run}: the signal at {place} was sent {times} times"


def old_wishes_are_void(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """A run that was begun again is not cancelled by what was sent before it (21).

    What was still on its way when a person asked for it may come in between, and counts for either.
    """
    messages = {message.number: message for message in evidence.messages}
    wishes = [number for number in sorted(messages) if messages[number].type is MessageType.CANCEL]
    old = wishes[: ledger.before.get(id_text(evidence.row.id), len(wishes))]
    for run, events in evidence.runs.items():
        if run == 1 or not opening_of(events).done.startswith("restarted"):
            continue
        for event in events[opening_of(events).kept + 1 :]:
            if event.type is EventType.MESSAGE_RECEIVED and event.message is not None:
                wish = messages[event.message]
                if event.message in old and wish.at < events[0].at:
                    yield f"run {run}: the wish to cancel in message {event.message} was meant for an earlier run"


def what_fits_goes_on(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """Nobody who took no changed way, and no result by hand, is said not to fit the code (19)."""
    if is_task(evidence.row.kind) or any(isinstance(n, Way) and n.careless for n in _own(evidence)):
        return
    for run, events in evidence.runs.items():
        changed = any(event.type is EventType.PATCHED for event in events) or by_hand(events)
        for event in events if not changed else ():
            if event.type is EventType.BROKEN and Failure.shown(event.payload or b"{}").type == "HistoryMisfit":
                yield f"run {run}: {Failure.shown(event.payload or b'').message:.400}"


def one_way_is_gone(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """Who says at the end which way it went has no result of the other one, and went the new way by a patch (19).

    The old way may be gone by who took the patch: a worker whose code does not know it yet may go on with him.
    """
    if is_task(evidence.row.kind) or evidence.row.status is not Status.COMPLETED:
        return
    results = {event.payload for event in evidence.events if event.type is EventType.STEP_COMPLETED}
    taken = {event.name for event in evidence.events if event.type is EventType.PATCHED}
    value = json.decode(evidence.row.result or b"null")[-1]
    for way, gone in _ways(program_of(evidence.row).body, value):
        for other in nodes(way.new if gone == "old" else way.old, children=False):
            if isinstance(other, Do) and json.encode(other.label) in results:
                yield f"it has gone the {gone} way at {way.name}, and its history has a result of {other.label}"
        if not way.careless and gone == "new" and way.name not in taken:
            yield f"it has gone the new way at {way.name}, and took no patch"


def _ways(node: Node, value: Any) -> Iterator[tuple[Way, str]]:
    """The changes of the code that it came by, and which way it went there, as far as a value tells."""
    match node, value:
        case Way(old=old, new=new), [("old" | "new") as gone, one]:
            yield node, gone
            yield from _ways(new if gone == "new" else old, one)
        case ((Line(parts) | Fork(parts)), list()) if len(value) == len(parts):
            for part, one in zip(parts, value, strict=True):
                yield from _ways(part, one)
        case ((Within(part) | Attempted(part)), [("in time" | "good"), one]):
            yield from _ways(part, one)
        case ((Scope(part) | Guard(part)), _):
            yield from _ways(part, value)


def _own(evidence: Evidence) -> Iterator[Node]:
    return nodes(program_of(evidence.row).body, children=False)


def undos_get_results(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """An undo is given the result of its step, if that is recorded (rule 23): it has waited for the step's end."""
    id = id_text(evidence.row.id)
    given = {":".join(slot) for slot in ever_by_hand(evidence)}
    for run, events in evidence.runs.items():
        own = [event for event in events if event.type is EventType.STEP_COMPLETED and event.message is None]
        ended = {f"{event.name}:{event.place}" for event in own} - given
        for event in own:
            if undo.undoes(event.place) in ended and event.name in STEPS:
                kinds = Counter(e.kind for e in ledger.effects if fits(e.key, evidence.row, id, event))
                if 0 < kinds["undoing"] <= kinds["unknowing"]:
                    yield f"run {run}: {event.name}:{event.place} did not know the result that is recorded"


LAWS = (
    keys_name_the_run, signals_are_sent_once, old_wishes_are_void, what_fits_goes_on, one_way_is_gone,
    undos_get_results,
)  # fmt: skip


def attempts_end(everything: Mapping[bytes, Evidence], ledger: Ledger) -> Iterator[Finding]:
    """No step is tried more often than its policy allows."""
    for effect in ledger.effects:
        if effect.kind == "surplus":
            yield Finding(
                "attempts_end", b"", f"{effect.label} has no attempt left, and is tried for the {effect.attempt}. time"
            )


def undo_waits(everything: Mapping[bytes, Evidence], ledger: Ledger) -> Iterator[Finding]:
    """No undo begins where its own step is still under way (23)."""
    for effect in ledger.effects:
        if effect.beside:
            yield Finding("undo_waits", b"", f"the undo of {effect.label} began beside it, on {effect.node}")


def findings(everything: Mapping[bytes, Evidence], ledger: Ledger) -> Sequence[Finding]:
    """All that is wrong with how processes went on."""
    found = [
        Finding(law.__name__, id, text)
        for id, evidence in everything.items()
        for law in LAWS
        for text in law(evidence, ledger)
    ]
    return [*found, *attempts_end(everything, ledger), *undo_waits(everything, ledger)]
