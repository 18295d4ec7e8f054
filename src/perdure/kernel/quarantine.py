"""Quarantine: which processes are suspects of killing their worker, and how many of them may run together.

A process that was held at two deaths of its worker is a suspect. It runs next in a quarantine worker, an OS process for
suspects only, in the *company* of other suspects: at most half as many as the dead worker held. Each death there halves
the company, until the guilty process runs alone; only deaths while it runs alone count towards parking it (rule 13).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from perdure.clock import microseconds
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process
from perdure.limits import QUARANTINE_PROCESSES, REVIVAL_LOOP_SECONDS, SUSPECT_DEATHS

_COMES = ("child ", "task ", "signal ")
"""What arrives as a message; everything else that a row may wait for begins in its own worker."""


def is_suspect(process: Process) -> bool:
    """Whether only a quarantine worker may claim it."""
    return process.deaths >= SUSPECT_DEATHS


def company(process: Process) -> int:
    """How many suspects may run together, this one included: 1 is alone, 0 says that it is no suspect."""
    return max(1, -process.alone_deaths) if is_suspect(process) else 0


def together(marks: Sequence[int]) -> list[int]:
    """The places of the suspects that run next: the first one, and as many of the same company as may run with it.

    ``marks`` are the ``alone_deaths`` of all suspects, in the order of a claim.
    """
    alike = [place for place, mark in enumerate(marks) if mark == marks[0]]
    return alike[: max(1, -marks[0])] if alike else []


def only_waited(process: Process) -> bool:
    """Whether an owned row says that it ran no code since its last commit: it waited for children, tasks or signals.

    A commit says what a process waits for only if nothing is in flight, and a message that wakes it raises ``inbox``.
    A timer does not: a process that waits for a timer may have been woken. A process that was claimed for a step (a
    task, or a retry that was due) may have begun it.
    """
    awaiting = process.awaiting
    return (
        awaiting is not None
        and all(what.startswith(_COMES) for what in awaiting.split(", "))
        and not awaiting.endswith("…")
        and process.inbox == process.seen
    )


def held_by(rows: Iterable[Process]) -> Counter[bytes]:
    """How many of these rows each owner held that are suspects, or become suspects by one more death."""
    suspected = (row for row in rows if row.deaths >= SUSPECT_DEATHS - 1 and not only_waited(row))
    return Counter(row.owner for row in suspected if row.owner is not None)


_BEGINNINGS = frozenset({EventType.ATTEMPT_BEGUN, EventType.ARGUMENTS_KEPT})


def revivals(history: Sequence[Event], now: int) -> int:
    """How often a process was revived lately, at the end of its history, with nothing recorded in between.

    Revivals of a process that only waited do not count: it had nothing to record. That a step begins is no record of
    what came of it.
    """
    many = 0
    for event in reversed(history):
        if event.type in _BEGINNINGS:
            continue
        if event.type is not EventType.REVIVED or event.at < now - microseconds(REVIVAL_LOOP_SECONDS):
            break
        many += b'"waited"' not in (event.payload or b"")
    return many


def after_death(process: Process, held: int) -> tuple[int, int]:
    """The counts (deaths, alone deaths) of a process that may have killed its worker, which held ``held`` suspects.

    As long as a suspect need not run alone, the second count is its company, below zero.
    """
    if company(process) == 1:
        return process.deaths, process.alone_deaths + 1
    deaths = process.deaths + 1
    if deaths < SUSPECT_DEATHS:
        return deaths, 0
    half = min(held, company(process) or 2 * QUARANTINE_PROCESSES) // 2
    return deaths, -half if half > 1 else 0
