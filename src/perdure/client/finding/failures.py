"""Failures grouped by their cause: ten thousand processes that a bank's outage has failed are one line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from perdure.client.finding.finder import Finder
from perdure.client.view import instant
from perdure.clock import SECOND
from perdure.errors import InvalidInput
from perdure.kernel.fingerprint import Cause
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.store.base import Search, Store

FAILED = (Status.FAILED, Status.BROKEN)
"""The statuses in which a process has an error that somebody may mend."""
RECENT_SECONDS = 3600
GROUPINGS = ("cause", "worker")


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed and broken processes with one cause: of one kind and version, in one step, with one error.

    If failures are grouped ``by`` worker too, ``worker`` is the one on which all of them did, empty if it is not known;
    else it is empty.

    ``message`` is the error's text without what varies, ``sample`` the id of the process that has failed last and
    ``example`` its whole text. ``failed`` and ``broken`` count them, ``recent`` those of the last hour. ``first`` and
    ``last`` are when the first and the last of them came to be so. ``query`` finds them: ``engine.list(where=...)``.
    """

    fingerprint: str
    kind: str
    version: str
    step: str
    type: str
    message: str
    failed: int
    broken: int
    recent: int
    first: datetime | None
    last: datetime | None
    sample: str
    example: str
    worker: str = ""
    by: str = "cause"

    @property
    def count(self) -> int:
        """How many processes there are."""
        return self.failed + self.broken

    @property
    def query(self) -> str:
        """The query that finds these processes."""
        on = f'worker = "{self.worker}"' if self.worker else "not worker"
        return f"fingerprint = {self.fingerprint}" + (f" and {on}" if self.by == "worker" else "")


class _Group:
    """What is known of a group while the processes are read."""

    def __init__(self, cause: Cause, last: Process, example: str) -> None:
        self.cause = cause
        self.last = last
        self.example = example
        self.first_at = last.changed_at
        self.broken = self.failed = self.recent = 0

    def add(self, row: Process, example: str, now: int) -> None:
        self.broken += row.status is Status.BROKEN
        self.failed += row.status is Status.FAILED
        self.recent += now - row.changed_at <= RECENT_SECONDS * SECOND
        self.first_at = min(self.first_at, row.changed_at)
        if row.changed_at > self.last.changed_at:
            self.last, self.example = row, example

    def view(self, worker: str, by: str) -> FailureGroup:
        cause = self.cause
        return FailureGroup(
            cause.fingerprint, cause.kind, cause.version, cause.step, cause.type, cause.message,
            self.failed, self.broken, self.recent, instant(self.first_at), instant(self.last.changed_at),
            id_text(self.last.id), self.example, worker, by,
        )  # fmt: skip


async def grouped(store: Store, search: Search, where: str, by: str = "cause") -> list[FailureGroup]:
    """All failed and broken processes that fit, in groups, the largest first. Raises InvalidInput.

    Grouped ``by`` worker the one with the most failures is first, with each of its causes.
    """
    if by not in GROUPINGS:
        raise InvalidInput(f"failures are not grouped by {by!r:.100}. Give one of: {', '.join(GROUPINGS)}.")
    now = await store.now()
    groups: dict[tuple[str, Cause], _Group] = {}
    workers: Counter[str] = Counter()
    async for page in Finder(store, search, where).every():
        for one in page:
            if one.failure is not None and one.cause is not None:
                text, worker = one.failure.message, one.failure.worker if by == "worker" else ""
                groups.setdefault((worker, one.cause), _Group(one.cause, one.row, text)).add(one.row, text, now)
                workers[worker] += 1
    found = [group.view(worker, by) for (worker, _), group in groups.items()]
    return sorted(found, key=lambda one: (-workers[one.worker], one.worker, -one.count, one.fingerprint))
