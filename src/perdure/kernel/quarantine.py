"""Quarantine: which processes are suspects of killing their worker, and how many of them may run together.

A process that was in hand at two deaths is a suspect. It runs next in a quarantine worker, an OS process for suspects
only, in the *company* of other suspects: at most half as many as were in hand when their worker died. Each death there
halves the company, until the guilty process runs alone; only deaths there count towards parking it (rule 13).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from perdure.kernel.process import Process
from perdure.limits import QUARANTINE_PROCESSES, SUSPECT_DEATHS

_COMES = ("child ", "task ", "signal ")
"""What comes as a message; all else that a row may wait for begins in the hand of its worker."""


def is_suspect(process: Process) -> bool:
    """Whether only a quarantine worker may claim it."""
    return process.deaths >= SUSPECT_DEATHS


def company(process: Process) -> int:
    """How many suspects may run together with it, itself included: 1 is alone, 0 says that it is no suspect."""
    return max(1, -process.alone_deaths) if is_suspect(process) else 0


def together(marks: Sequence[int]) -> list[int]:
    """Of suspects, given by their ``alone_deaths`` in the order of a claim, the places of those that run next.

    The first one, and as many of the same company as may run with it.
    """
    alike = [place for place, mark in enumerate(marks) if mark == marks[0]]
    return alike[: max(1, -marks[0])] if alike else []


def only_waited(process: Process) -> bool:
    """Whether an owned row says that it ran no code since its last commit: it waited for children, tasks or signals.

    A commit says what a process waits for only where nothing is in flight, and whatever wakes it raises ``inbox``. A
    timer does not, so who waits for one may have been woken; and who is claimed for a step, as a task is or a retry
    that is due, may have begun it.
    """
    awaiting = process.awaiting
    return (
        awaiting is not None
        and all(what.startswith(_COMES) for what in awaiting.split(", "))
        and not awaiting.endswith("…")
        and process.inbox == process.seen
    )


def held_by(rows: Iterable[Process]) -> Counter[bytes]:
    """How many of these rows, that are suspects or become so by one more death, each of their owners had in hand."""
    suspected = (row for row in rows if row.deaths >= SUSPECT_DEATHS - 1 and not only_waited(row))
    return Counter(row.owner for row in suspected if row.owner is not None)


def after_death(process: Process, held: int) -> tuple[int, int]:
    """The counts (deaths, alone deaths) of what may have killed its worker, which had ``held`` suspects in hand.

    Where a suspect need not run alone yet, the second one is its company below zero.
    """
    if company(process) == 1:
        return process.deaths, process.alone_deaths + 1
    deaths = process.deaths + 1
    if deaths < SUSPECT_DEATHS:
        return deaths, 0
    half = min(held, company(process) or 2 * QUARANTINE_PROCESSES) // 2
    return deaths, -half if half > 1 else 0
