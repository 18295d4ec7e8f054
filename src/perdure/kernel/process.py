"""A process: one durable, long-running thing the business would name, as it is now, with its attributes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, json

from perdure.kernel.payload import encode_attributes


class Status(StrEnum):
    """What a process is; "waiting" is not a status but *running*, due later."""

    RUNNING = "running"
    HELD = "held"
    BROKEN = "broken"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


RUNNING, COMPLETED = Status.RUNNING, Status.COMPLETED
"""The most frequent statuses, as constants: in CPython 3.11 every look-up in an enum's class is a call."""

FINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
UNFINISHED = (Status.RUNNING, Status.HELD, Status.BROKEN)

MOVES: Mapping[Status, frozenset[Status]] = {
    Status.RUNNING: frozenset(Status),
    Status.HELD: frozenset({Status.RUNNING, Status.HELD, Status.FAILED, Status.CANCELLED}),
    Status.BROKEN: frozenset({Status.RUNNING, Status.BROKEN, Status.FAILED, Status.CANCELLED}),
    Status.COMPLETED: frozenset({Status.RUNNING}),
    Status.FAILED: frozenset({Status.RUNNING}),
    Status.CANCELLED: frozenset({Status.RUNNING}),
}
"""The legal moves. A final status is left only by an operator's command that opens a new run."""


DEFAULT_PRIORITY = 4
"""Of a process of which nothing else is said; 0 comes first, 9 last."""


class Process(Struct, frozen=True, gc=False):
    """One row of the table ``process``. Times are microseconds since 1970 by the store's clock.

    ``token`` fences: only the holder of the current one may commit. ``version`` counts the commits of the
    process itself. ``inbox`` counts what was ever sent to it, ``seen`` the highest message number a commit recorded.
    ``due_at`` is the time by which a worker must look again: the lease end of an owned row, ``None`` when finished.
    ``reminder`` says that ``due_at`` is only a reminder for a sweep (an idle check, a held or broken row): no claim
    takes such a row; a message to a running one clears it and makes the row due now.
    ``deaths`` counts the deaths of its worker while that held others too, ``alone_deaths`` those while it ran alone.
    Below zero, ``alone_deaths`` is its company: so many suspects may run together, until it has to run alone.
    ``share`` and ``cost`` are for tasks: on whose account a task runs in its queue, how much of the limits it takes. Of
    a process whose kind has limits, ``share`` says that it has a place among the processes of its kind.
    """

    id: bytes
    kind: str
    key: str | None
    input: bytes
    status: Status = Status.RUNNING
    run: int = 1
    version: int = 0
    token: int = 0
    owner: bytes | None = None
    due_at: int | None = None
    reminder: bool = False
    inbox: int = 0
    seen: int = 0
    events: int = 0
    awaiting: str | None = None
    deaths: int = 0
    alone_deaths: int = 0
    deadline: int | None = None
    priority: int = DEFAULT_PRIORITY
    attributes: bytes | None = None
    state: bytes | None = None
    progress: bytes | None = None
    result: bytes | None = None
    error: bytes | None = None
    parent: bytes | None = None
    code: str = ""
    created_at: int = 0
    opened_at: int | None = None
    changed_at: int = 0
    share: str | None = None
    cost: int = 1

    @property
    def final(self) -> bool:
        """Whether the process has ended: completed, failed or cancelled."""
        return self.status in FINAL


Changes = Mapping[str, Any]
"""New values by name; None takes the name away."""


FORMER_KEY = "@former_key"
"""The attribute with the key that a process had before it was released: its input was sealed for that key."""
_FORMER = json.encode(FORMER_KEY)


def former_key(process: Process) -> str | None:
    """The key that was released, if one was."""
    if process.attributes is None or _FORMER not in process.attributes:
        return None
    key = json.decode(process.attributes).get(FORMER_KEY)
    return key if isinstance(key, str) else None


def missing(stored: bytes | None, changes: Changes) -> dict[str, Any]:
    """The changes that the stored attributes do not show yet."""
    if stored is None:
        return {name: value for name, value in changes.items() if value is not None}
    shown = json.decode(stored)
    return {name: value for name, value in changes.items() if not _same(shown, name, value)}


def _same(shown: Mapping[str, Any], name: str, value: Any) -> bool:
    if value is None:
        return name not in shown
    there = shown.get(name)
    return isinstance(there, bool) is isinstance(value, bool) and bool(there == value)


def merged(stored: bytes | None, changes: Changes) -> bytes | None:
    """The attributes with the changes made; raises PayloadTooLarge."""
    after: dict[str, Any] = {} if stored is None else json.decode(stored)
    for name, value in changes.items():
        if value is None:
            after.pop(name, None)
        else:
            after[name] = value
    return encode_attributes(after) if after else None
