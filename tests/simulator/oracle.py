"""The oracle: what a program must have come to, by pure interpretation, and what the stored records say of it.

Without faults there is one right answer. With faults, cancels and people's commands there is a set of them, and what
is not in it is a violation, each under a name of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, json

from perdure.kernel.failure import Failure
from perdure.kernel.process import Process, Status
from perdure.kernel.soundness import Finding
from tests.simulator.play import letter
from tests.simulator.program import (
    Attempted,
    Chain,
    Do,
    Fall,
    Fork,
    Guard,
    Hear,
    Kin,
    Line,
    Node,
    Program,
    Rest,
    Say,
    Scope,
    Way,
    Within,
    inside,
    nodes,
)  # fmt: skip

BY_HAND = "by hand"
"""The value that people set in these histories; a step left out has none."""


class Facts(Struct):
    """What was done to one process from outside, as far as it matters for its end. ``calm`` means: no faults at all.

    ``old`` says that old code may have had it in hand, ``bereft`` that its children were told to end before it, and
    whoever told them died before it was ended itself.
    """

    calm: bool = True
    cancelled: bool = False
    terminated: bool = False
    expiring: bool = False
    by_hand: bool = False
    mended: bool = False
    old: bool = False
    bereft: bool = False


class Endings(Struct, frozen=True):
    """Whether a part may give a value, and whether it may raise."""

    value: bool
    error: bool


def endings(node: Node, facts: Facts) -> Endings:
    """How a part of a program may end."""
    match node:
        case Do(fatal=fatal, queue=queue):
            return Endings(not fatal or facts.mended or facts.by_hand, fatal or (queue and facts.bereft))
        case Fall():
            return Endings(False, True)
        case Rest() | Hear() | Say() | Kin(awaited=False):
            return Endings(True, False)
        case Attempted(part):
            return Endings(True, False)
        case Kin(part):
            end = endings(part, facts)
            return Endings(end.value or facts.by_hand, end.error or facts.bereft)
        case Line(parts) | Fork(parts):
            every = [endings(part, facts) for part in parts]
            return Endings(all(end.value for end in every), any(end.error for end in every))
        case Chain():
            return endings(Line(inside(node)), facts)
        case Within(part, late=late):
            end = endings(part, facts)
            return Endings(late or end.value or not facts.calm, end.error)
        case Scope(part):
            return endings(part, facts)
        case Guard(part, cleanup):
            return endings(Line([part, cleanup]), facts)
        case Way(old=old, new=new):
            ways = [endings(way, facts) for way in ((old, new) if facts.old else (new,))]
            return Endings(any(end.value for end in ways), any(end.error for end in ways))
    raise TypeError(f"no program has a {node!r}")


def may_leak(node: Node) -> bool:
    """Whether asyncio may take a time limit for a wish to cancel: Python before 3.13, after a task group has failed.

    The group leaves its task's count of cancellations one too high; a limit around it that runs out while something is
    cleaned up there then raises CancelledError, in any program of asyncio. A workflow's code is no exception.
    """
    if sys.version_info >= (3, 13):
        return False
    limits = [one for one in nodes(node, children=False) if isinstance(one, Within)]
    inside = (part for limit in limits for part in nodes(limit.part, children=False))
    return any(isinstance(part, Fork) and part.group and endings(part, Facts(calm=False)).error for part in inside)


def allowed(program: Program, facts: Facts) -> frozenset[Status]:
    """The statuses in which a process may be when nothing moves any more."""
    end = endings(program.body, facts)
    undoable = any(isinstance(node, Do) and node.undo_fatal for node in nodes(program.body, children=False))
    leaves = end.error or facts.cancelled or any(isinstance(n, Scope) for n in nodes(program.body, children=False))
    found = {
        Status.COMPLETED: end.value,
        Status.FAILED: end.error or facts.expiring,
        Status.CANCELLED: facts.cancelled or facts.terminated or may_leak(program.body),
        Status.BROKEN: undoable and leaves and not facts.mended,
    }
    return frozenset(status for status, may in found.items() if may)


# -- values ------------------------------------------------------------------------------------------------------------


def misfits(program: Program, value: Any, facts: Facts) -> Iterator[str]:
    """What is wrong with the value with which a process has completed."""
    if not isinstance(value, list) or len(value) != program.rounds:
        yield f"{value!r} are not the values of {program.rounds} rounds"
        return
    for one in value:
        yield from _misfits(program.body, one, facts)
    for name in {
        n.name for n in nodes(program.body, children=False) if isinstance(n, Hear) and n.name.startswith("letter")
    }:
        heard = [text for one in value for text in _heard(program.body, one, name)]
        sent = [letter(name, number) for number in range(1, 100)]
        places = [sent.index(text) if text in sent else -1 for text in heard]
        if -1 in places or places != sorted(set(places)):
            yield f"of the signals {name!r} it has received {heard}: not each once, in the order of sending"
        elif facts.calm and places != list(range(len(places))):
            yield f"of the signals {name!r} it has received {heard}: some were left out"


def _misfits(node: Node, value: Any, facts: Facts) -> Iterator[str]:
    if facts.by_hand and isinstance(node, Do | Chain | Kin) and value in (None, BY_HAND):
        return
    match node, value:
        case Do(label=label), str() if value == label:
            return
        case Chain(steps), str() if value == steps[-1].label:
            return
        case (Rest(), "rested") | (Say(), "said") | (Kin(awaited=False), "left"):
            return
        case ((Line(parts) | Fork(parts)), list()) if len(value) == len(parts):
            for part, one in zip(parts, value, strict=True):
                yield from _misfits(part, one, facts)
            return
        case Within(part), ["in time", one] if not (facts.calm and node.late):
            yield from _misfits(part, one, facts)
            return
        case Within(), "late" if node.late or not facts.calm:
            return
        case Hear(timeout=None), ["heard", list() as texts] if len(texts) == node.count:
            return
        case Hear(timeout=float()), "quiet":
            return
        case Kin(part), ["child", [one]]:
            yield from _misfits(part, one, facts)
            return
        case Attempted(part), ["good", one] if endings(part, facts).value:
            yield from _misfits(part, one, facts)
            return
        case Attempted(part), ["bad", str()] if endings(part, facts).error:
            return
        case ((Scope(part) | Guard(part)), _):
            yield from _misfits(part, value, facts)
            return
        case Way(old=old, new=new), [("old" | "new") as way, one] if way == "new" or facts.old:
            yield from _misfits(old if way == "old" else new, one, facts)
            return
    yield f"{value!r:.200} is no value of {node!r:.300}"


def _heard(node: Node, value: Any, name: str) -> list[str]:
    """The signals of a name within a value."""
    match node, value:
        case Hear(name=own), ["heard", texts] if own == name:
            return list(texts)
        case ((Line(parts) | Fork(parts)), list()) if len(value) == len(parts):
            return [text for part, one in zip(parts, value, strict=True) for text in _heard(part, one, name)]
        case ((Within(part) | Attempted(part)), [_, one]):
            return _heard(part, one, name)
        case Way(old=old, new=new), [way, one]:
            return _heard(old if way == "old" else new, one, name)
        case ((Scope(part) | Guard(part)), _):
            return _heard(part, value, name)
    return []


# -- one process -------------------------------------------------------------------------------------------------------


def judge(row: Process, program: Program, facts: Facts) -> list[Finding]:
    """Whether the process has come to an end that its program and its facts allow."""
    found = []
    if row.status not in allowed(program, facts):
        text = f"it is {row.status} ({_said(row)}) and may only be {', '.join(sorted(allowed(program, facts)))}"
        found.append(Finding("the_end_is_the_programs", row.id, f"{text}; {facts}; {program!r:.600}"))
    elif row.status is Status.COMPLETED:
        value = json.decode(row.result or b"null")
        found += [Finding("the_value_is_exact", row.id, text) for text in misfits(program, value, facts)]
    elif row.status is Status.FAILED:
        failure = Failure.shown(row.error or b"{}")
        right = {"StepError", "ProcessFailed", "ProcessCancelled", "Fallen", "ExceptionGroup"}
        right |= {"DeadlineExceeded"} if facts.expiring else set()
        right |= {"StepTimeout"} if not facts.calm and _may_time_out(program) else set()
        if failure.type not in right:
            found.append(Finding("the_end_is_the_programs", row.id, f"it has failed with {_said(row)}"))
    return found


def _may_time_out(program: Program) -> bool:
    """Whether a step may fail by its timeout: if its worker stands still in its last attempt, that runs over it."""
    return any(isinstance(n, Do) and n.hangs and n.spends for n in nodes(program.body, children=False))


def _said(row: Process) -> str:
    if row.error is None:
        return "no error"
    failure = Failure.shown(row.error)
    return f"{failure.type}: {failure.message:.300}"
