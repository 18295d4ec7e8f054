"""What a store must show to a sweep, over the plain dictionaries of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perdure.clock import SECOND
from perdure.kernel.message import LETTERS
from perdure.kernel.process import Process, Status
from perdure.store.base import Overdue, Search

if TYPE_CHECKING:
    from perdure.testing.model import Model


def overdue(model: Model, search: Search) -> list[Process]:
    """The rows that are overdue in one way, the longest overdue first, and inboxes by id."""
    minute = 60 * SECOND
    tests: dict[Overdue, Callable[[Any], object]] = {
        Overdue.ORPHANED: lambda row: row.owner and not model.alive(row.owner),
        Overdue.LAPSED: lambda row: row.owner and row.status is Status.RUNNING and row.due_at <= model.now,
        Overdue.EXPIRED: lambda row: not row.final and row.deadline is not None and row.deadline <= model.now,
        Overdue.IDLE: lambda row: row.reminder and row.due_at <= model.now,
        Overdue.OWNED: lambda row: row.owner == search.owner,
        Overdue.UNHOSTED: lambda row: (
            row.status is Status.RUNNING and not row.owner and not row.reminder and row.due_at <= model.now - minute
        ),
        Overdue.INBOX: lambda row: (
            row.status is Status.RUNNING and not row.owner and row.due_at > model.now and _left(model, row)
        ),
    }
    what = search.overdue or Overdue.IDLE
    found = [row for row in model.rows.values() if tests[what](row)]
    column = "deadline" if what is Overdue.EXPIRED else "due_at"
    keyed = sorted(((0 if what is Overdue.INBOX else getattr(row, column), row.id), row) for row in found)
    if what is Overdue.UNHOSTED:
        return _shared([row for _, row in keyed], search)
    return [row for key, row in keyed if search.after is None or key > search.after][: search.limit]


def _left(model: Model, row: Process) -> bool:
    """Whether letters wait that the process has heard and not received."""
    inbox = model.inboxes.get(row.id, [])
    return any(one.type in LETTERS and one.number <= row.seen and one.consumed_by is None for one in inbox)


def _shared(found: list[Process], search: Search) -> list[Process]:
    """Give each waiting kind and code an equal part of the ``limit`` rows; at most ``limit`` of them get one."""
    pairs = sorted({(row.kind.encode(), row.code.encode()) for row in found})
    after = search.after_pair and tuple(text.encode() for text in search.after_pair)
    pairs = [pair for pair in pairs if not after or pair > after][: search.limit]
    part = max(search.limit // max(len(pairs), 1), 1)
    left = dict.fromkeys(pairs, part)
    told = []
    for row in found:
        pair = (row.kind.encode(), row.code.encode())
        if left.get(pair):
            left[pair] -= 1
            told.append(row)
    return told
