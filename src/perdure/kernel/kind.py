"""A kind with limits: how many of its processes run at once, and how many start in a time, over all workers.

A process of such a kind waits until it is admitted; from then on it has a place among the processes of its kind, until
it has ended, whoever holds it. The place is a mark in its row. The limits are a row of the table ``queue``, under a
name that no queue has. This module decides how many may be admitted, from what a store has read under the lock of that
row; PostgreSQL does the same in SQL, and the conformance suite compares.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from msgspec import json
from msgspec.structs import replace

from perdure.clock import Duration, in_seconds, microseconds
from perdure.errors import DefinitionError
from perdure.kernel.child import is_task
from perdure.kernel.plain import shown
from perdure.kernel.process import Process
from perdure.kernel.queue import Load, Queue
from perdure.kernel.stored import MALFORMED
from perdure.limits import FARTHEST_SECONDS

KIND_MARK = " kind "
"""The row with the limits of a kind has this and the kind as its name: no queue's name begins with a space."""
DECLARED = "workflow"
"""The origin of limits that a workflow itself declares; limits of any other origin were set by a person."""
PLACE = " place"
"""The share of a process that has a place among the processes of its kind; no share that anybody gives is so."""
TAKEN_OVER = " taken over"
"""The share of an imported process that had ended: if it is reopened it waits for a place."""
FULL_LOOK = 200_000
"""After so many microseconds it is looked again whether a place is free, if no worker was told that one is."""
FINE = 1000
"""Up to so many starts in a period, each is kept with its own time; more are counted in parts of the period."""
MOST = 1_000_000_000
"""The largest number that a limit can be."""


@dataclass(frozen=True, slots=True, init=False)
class Limits:
    """How many processes of one kind may run at once, and how many may start in a time, over all workers.

    At most ``running`` processes are admitted and have not ended; at most ``starts`` are admitted in any stretch of
    time that is ``per`` long (seconds or a timedelta). What is over a limit is stored all the same, and waits for its
    turn: by priority, then by the time of its start. Raises DefinitionError.
    """

    running: int | None
    starts: int | None
    per: float | None

    def __init__(self, *, running: int | None = None, starts: int | None = None, per: Duration | None = None) -> None:
        for name, number in (("running", running), ("starts", starts)):
            if number is not None and (type(number) is not int or not 1 <= number <= MOST):
                raise DefinitionError(f"{name}={shown(number)}. Give a whole number from 1, or leave it out.")
        if running is None and starts is None:
            raise DefinitionError("Limits() limits nothing. Give running=, or starts= with per=, or both.")
        if (starts is None) is not (per is None):
            raise DefinitionError("starts= and per= belong together: Limits(starts=100, per=60). Give both or neither.")
        seconds = in_seconds(per)
        if seconds is not None and (type(seconds) not in (int, float) or not 0.000001 <= seconds <= FARTHEST_SECONDS):
            raise DefinitionError(f"per={shown(per)}. Give seconds or a timedelta, more than 0.")
        for name, value in (("running", running), ("starts", starts), ("per", seconds)):
            object.__setattr__(self, name, value)

    def row(self, old: Queue) -> Queue:
        """The row of a kind with these limits instead of its own."""
        per = 1_000_000 if self.per is None else microseconds(self.per)
        return replace(old, concurrency=self.running, rate=self.starts, per=per)


def unlimited(old: Queue) -> Queue:
    """The row of a kind without its limits."""
    return replace(old, concurrency=None, rate=None, per=1_000_000)


def kind_of(row: Queue) -> str | None:
    """The kind whose limits this row holds; None if it is the row of a queue."""
    return row.name.removeprefix(KIND_MARK) if row.name.startswith(KIND_MARK) else None


def is_limited(row: Queue) -> bool:
    """Whether this row limits anything."""
    return row.concurrency is not None or row.rate is not None


def left_behind(rows: Sequence[Queue], kinds: Set[str]) -> list[str]:
    """Those of these kinds with limits that their workflow has declared once: no person has set others since."""
    found = [kind_of(row) for row in rows if row.origin == DECLARED and is_limited(row)]
    return [kind for kind in found if kind is not None and kind in kinds]


def starts_of(row: Queue) -> list[tuple[int, int]]:
    """When processes of the kind were admitted, and how many then: the last ones, as far as they were kept."""
    try:
        return json.decode(row.turn or "[]", type=list[tuple[int, int]])
    except MALFORMED:
        return []


def places(row: Queue, running: int) -> int | None:
    """How many more may run beside ``running``; None if there is no limit."""
    return None if row.concurrency is None else max(row.concurrency - running, 0)


def pace(row: Queue, now: int) -> int | None:
    """How many more may start now; None if there is no limit."""
    if row.rate is None:
        return None
    return max(row.rate - sum(number for at, number in starts_of(row) if at > now - row.per), 0)


def admitted(row: Queue, number: int, now: int) -> Queue:
    """The row after so many were admitted: what the rate counts of them is kept for one period."""
    if row.rate is None or not number:
        return row
    part = 1 if row.rate <= FINE else max(row.per // FINE, 1)
    at = -(-now // part) * part
    kept = [one for one in starts_of(row) if now - row.per < one[0] != at]
    number += sum(before for then, before in starts_of(row) if then == at)
    return replace(row, turn=json.encode([*kept, (at, number)]).decode())


def look_at(row: Queue, running: int, now: int) -> int:
    """When to look again whether one that waits may be admitted, if none may be now."""
    if places(row, running) == 0:
        return now + FULL_LOOK
    times = [at + row.per for at, _ in starts_of(row) if at > now - row.per]
    return min(times, default=now) if pace(row, now) == 0 else now


def waits(process: Process, rows: Sequence[Queue], loads: Sequence[Load], now: int) -> str | None:
    """Why a due process without an owner is not admitted, for people; None if no limit of its kind keeps it waiting."""
    if is_task(process.kind) or process.share == PLACE:
        return None
    row = next((row for row in rows if row.name == KIND_MARK + process.kind and is_limited(row)), None)
    if row is None:
        return None
    running = sum(load.tasks for load in loads if load.name == row.name)
    told = "it waits for a place among processes of its kind"
    if places(row, running) == 0:
        return f"{told} ({running:,} of {row.concurrency:,} run)"
    if pace(row, now) == 0:
        return f"{told} ({row.rate:,} have started in {row.per / 1_000_000:g} s)"
    return None
