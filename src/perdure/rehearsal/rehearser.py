"""Rehearsals of many processes: which of them would not fit the code at hand, at which event, and why, by cause.

Nothing is started, sent or written: neither steps nor the database notice. Processes are read page by page, and those
of one page are replayed one after another, so that memory is bounded whatever their number.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from perdure.authoring.registry import Registry
from perdure.authoring.step_policies import StepPolicies
from perdure.client.finding.finder import Finder, fields_of
from perdure.client.snapshot import snapshots
from perdure.kernel import archive
from perdure.kernel.child import is_task
from perdure.kernel.event import Event
from perdure.kernel.fingerprint import without_what_varies
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.kernel.process import UNFINISHED, Process
from perdure.rehearsal.report import Misfit, Rehearsal
from perdure.rehearsal.trial import Unfit, rehearse
from perdure.retention.archive_file import files, opened
from perdure.store.base import Search, Store

SAMPLES = 5


class _Cause(Struct, frozen=True):
    kind: str
    version: str
    type: str
    message: str


class Rehearser:
    """Rehearses one process after another against a registry, and counts what does not fit by cause."""

    def __init__(self, registry: Registry, policies: StepPolicies, version: str | None = None) -> None:
        self._registry = registry
        self._policies = policies
        self._version = version
        self._total = 0
        self._groups: dict[_Cause, tuple[int, list[str], Unfit]] = {}

    def take(self, process: Process, events: Sequence[Event], messages: Sequence[Message]) -> Iterator[None]:
        """Rehearse one process; a long history in portions, after each of which this yields."""
        found = yield from rehearse(self._registry, self._policies, process, events, messages, self._version)
        self._count(process, found)

    def _count(self, process: Process, found: Unfit | None) -> None:
        self._total += 1
        if found is None:
            return
        cause = _Cause(str(process.kind), str(process.code), found.type, without_what_varies(found.message))
        number, samples, first = self._groups.get(cause, (0, [], found))
        if number < SAMPLES:
            samples.append(id_text(process.id))
        self._groups[cause] = number + 1, samples, first

    def report(self) -> Rehearsal:
        """What was found until now."""
        misfits = [
            Misfit(
                cause.kind, cause.version, cause.type, cause.message, number, samples, first.message, first.event,
                first.step,
            )
            for cause, (number, samples, first) in self._groups.items()
        ]  # fmt: skip
        return Rehearsal(self._total, sorted(misfits, key=lambda one: (-one.count, one.kind, one.message)))


async def of_store(store: Store, rehearser: Rehearser, where: str = "", *, kind: str | None = None) -> Rehearsal:
    """Rehearse the processes that fit a query, queued steps excepted; without a status, those that have not ended."""
    finder = Finder(store, Search(kind=kind), where)
    if "status" not in fields_of(await finder.read()):
        finder = Finder(store, Search(kind=kind, statuses=UNFINISHED), where)
    async for portion in snapshots(store, finder):
        for one in portion:
            if is_task(one.process.kind):
                continue
            for _ in rehearser.take(one.process, one.events, one.messages):
                await asyncio.sleep(0)
    return rehearser.report()


def of_lines(lines: Iterable[bytes], rehearser: Rehearser, seen: set[bytes] | None = None) -> Rehearsal:
    """Rehearse the processes of an export, queued steps excepted; raises InvalidInput for a damaged line.

    Those that were ``seen``, by their ids, are left out; the others are added to them.
    """
    seen = set() if seen is None else seen
    for number, line in enumerate(lines, 1):
        one = archive.read(line, number)
        if not is_task(one.process.kind) and one.process.id not in seen:
            seen.add(one.process.id)
            deque(rehearser.take(one.process, one.events, one.messages), maxlen=0)
    return rehearser.report()


def of_files(path: str | Path, rehearser: Rehearser) -> Rehearsal:
    """Rehearse the processes of a file, or of all :func:`files` of a folder, each once; raises InvalidInput."""
    seen: set[bytes] = set()
    for file in files(path):
        with opened(file) as lines:
            of_lines(lines, rehearser, seen)
    return rehearser.report()
