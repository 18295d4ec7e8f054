"""An examination: a page of processes is read with all that belongs to them, checked, and mended if that was ordered.

The records are read while their processes go on. So whatever is found wrong with a process counts only if its row is
still the same afterwards: then nothing was written in between, and the three readings are of one state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from perdure.errors import PerdureError, StoreUnavailable
from perdure.exhaustion import exhausted
from perdure.kernel.check import Check, FixOrder, Record, detected, is_foreign, mend, relatives
from perdure.kernel.commit import Commit
from perdure.kernel.finding import Fixed, KeptFinding, mended, name_of, noted, outdated
from perdure.kernel.message import Message
from perdure.kernel.names import id_bytes, id_text
from perdure.kernel.process import Process
from perdure.kernel.soundness import Finding
from perdure.limits import CHECK_HISTORY_EVENTS, LIST_ROWS
from perdure.store.base import Search, Store
from perdure.store.snapshot import fetched

UNDECIDED = "record_is_readable"
"""The check to which an error belongs that the reading of one process's record raises."""


@dataclass(slots=True)
class Examined:
    """What became of a page: the processes that were ``examined``, what was found, and the records it was found in."""

    examined: dict[bytes, Process] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    records: dict[bytes, Record] = field(default_factory=dict)


class FixWriter:
    """What writes a fix: the door of commits, which answers whether one was applied, and that of messages."""

    def __init__(
        self, commit: Callable[[Commit], Awaitable[bool]], send: Callable[[Message], Awaitable[object]]
    ) -> None:
        self.commit = commit
        self.send = send


async def examine(store: Store, rows: Sequence[Process], checks: Sequence[Check]) -> Examined:
    """Check these processes; raises StoreUnavailable."""
    page = Examined()
    if not rows:
        return page
    # Whoever owns a row was enlisted before, so that the workers are read later than the rows.
    owners = {row.owner for row in rows if row.owner is not None}
    workers = frozenset(worker.id for worker in await store.workers(ids=owners)) if owners else frozenset()
    now = await store.now()
    for row in rows:
        try:
            record = await _read(store, row, workers, now)
            if record is None:
                continue
            page.examined[row.id] = row
            found = detected(checks, record)
        except StoreUnavailable:
            raise
        except Exception as error:  # of this row alone, which must not hide the others
            if exhausted(error):
                raise
            page.examined[row.id] = row
            text = f"nothing can be decided about it: {type(error).__name__}: {error}"
            found = [Finding(check.name, row.id, text) for check in checks if check.name == UNDECIDED]
            record = Record(row, (), (), now)
        if found:
            page.findings += found
            page.records[row.id] = record
    return await _settled(store, page)


async def _read(store: Store, row: Process, workers: frozenset[bytes], now: int) -> Record | None:
    """The record of a process; None if only others can judge it, or if it has moved since its row was read."""
    whole = await fetched(store, row)
    if whole is None or _moved(row, whole):
        return None
    row = whole
    # One event more than the row counts: if there is one, that is a fault.
    most = min(max(row.events, 0), CHECK_HISTORY_EVENTS) + 1
    events = await store.history(row.id, row.run, limit=most)
    messages = await store.messages([(row.id, 0)]) if row.inbox or row.seen else []
    if is_foreign(row, events, messages):
        return None
    ids = tuple(relatives(row, events))
    kin = await store.search(Search(ids=ids, limit=len(ids))) if ids else []
    return Record(
        row,
        tuple(sorted(events, key=lambda event: event.number)),
        tuple(sorted(messages, key=lambda message: message.number)),
        now,
        {one.id: one for one in kin},
        workers,
    )


async def _settled(store: Store, page: Examined) -> Examined:
    """The page without the findings about processes that have moved while they were read."""
    if not page.records:
        return page
    ids = tuple(page.records)
    fresh = {row.id: row for row in await store.search(Search(ids=ids, limit=len(ids)))}
    for id in ids:
        if _moved(page.records[id].process, fresh.get(id)):
            del page.records[id], page.examined[id]
    page.findings = [finding for finding in page.findings if finding.subject in page.records]
    return page


def _moved(before: Process, after: Process | None) -> bool:
    return after is None or (before.version, before.token, before.inbox, before.owner) != (
        after.version,
        after.token,
        after.inbox,
        after.owner,
    )


async def fix(page: Examined, order: FixOrder, writer: FixWriter) -> list[Fixed]:
    """Mend what can be mended, one fix at most for each process: the next look finds what is left."""
    fixed: list[Fixed] = []
    done: set[bytes] = set()
    for finding in page.findings:
        if finding.subject in done:
            continue
        try:
            way = mend(finding, page.records[finding.subject], order)
            if way is None:
                continue
            # If we die here, or behind a part of the messages, the fault is found again, and mended then.
            for message in way.sends:
                await writer.send(message)
            if way.commit is None or await writer.commit(way.commit):
                fixed.append(Fixed(finding.law, finding.subject, way.text))
                done.add(finding.subject)
        except StoreUnavailable:
            raise
        except PerdureError:
            continue  # the row cannot be written as it is: the finding stays
    return fixed


async def keep(
    store: Store, page: Examined, checks: Sequence[Check], now: int, *, fixed: Sequence[Fixed] = (), by: str = "",
    tell: Callable[[Finding], None] = lambda _: None,
) -> int:  # fmt: skip
    """Write down what was found and mended; the answer is how many findings are new, of which ``tell`` hears before.

    Two that write the same row at once write the same: one of them counts.
    """
    kept = await store.records(KeptFinding)
    changes = noted(kept, page.examined, [check.name for check in checks], page.findings, now)
    new = {row.name for row in changes if row.gone_at is None and row.since == now}
    for finding in page.findings:
        if name_of(finding.law, finding.subject) in new:
            tell(finding)
    # If we die here, or the write fails, people may be told once more: behind it nobody would know that they were not.
    if changes:
        kept = await store.records(KeptFinding, changes)
    if fixed and (after := mended(kept, fixed, by, now)):
        await store.records(KeptFinding, after)
    return len(new)


async def tidy(store: Store, now: int) -> None:
    """Remove findings whose fault has been gone for long, and those of processes that are not there any more."""
    kept = await store.records(KeptFinding)
    there: set[str] = set()
    for first in range(0, len(kept), LIST_ROWS):
        ids = tuple({id_bytes(row.process) for row in kept[first : first + LIST_ROWS]})
        there |= {id_text(row.id) for row in await store.search(Search(ids=ids, limit=len(ids)))}
    if changes := outdated(kept, there, now):
        await store.records(KeptFinding, changes)
