"""The remover: archives and removes processes by rules of retention, long enough after their end.

It works in rounds of a bounded size. Where each rule has come stands in a note, so that any worker goes on from there.
Two removers at once do no harm: a removal is fenced by the version of its process; an archive may have a line twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from perdure import limits
from perdure.clock import SECOND, microseconds
from perdure.errors import PerdureError, StoreUnavailable
from perdure.futures import in_thread
from perdure.kernel import archive
from perdure.kernel.note import RETENTION, Note
from perdure.kernel.process import Process
from perdure.kernel.retention import RetentionRule, RetentionState, RuleProgress, deciding, marks
from perdure.kernel.stored import why_undecodable
from perdure.retention.archive_file import COMPRESSED, PLAIN, ArchiveFile
from perdure.retention.family import awaited
from perdure.store.base import FoundRows, Search, Store
from perdure.store.snapshot import EVENTS_READ, READ_AT_ONCE, former_runs, portions, snapshot

REMOVED_AT_ONCE = 100
"""How many processes one transaction removes, with no more than PRUNED_EVENTS events unless it is one process."""


class RetentionRound(Struct):
    """What one round has done. ``files`` are the archives that it wrote, ``left`` counts what it had to leave.

    ``more`` says that the next round need not wait. ``unwritable`` says why nothing could be archived, if so.
    """

    removed: int = 0
    archived: int = 0
    left: int = 0
    files: list[str] = []
    more: bool = False
    unwritable: str = ""


class Remover:
    """Removes processes by rules. Keys are kept for ``keys`` microseconds more (rule 24)."""

    def __init__(self, store: Store, rules: Sequence[RetentionRule], keys: int, new_id: Callable[[], bytes]) -> None:
        self.rules = rules
        self._store = store
        self._keys = keys
        self._new_id = new_id
        self._name = new_id().hex()
        self._marks = dict(zip(marks(rules), rules, strict=True))
        self._note = Note(RETENTION)

    async def read(self) -> RetentionState:
        """How far the rules have come."""
        notes = await self._store.records(Note)
        self._note = next((note for note in notes if note.name == RETENTION), Note(RETENTION))
        return self._note.read(RetentionState)

    async def round(self, *, at_once: bool = False, anew: bool = False) -> RetentionRound:
        """Look at one page of processes by each rule; at none while another remover works, unless ``at_once``.

        ``anew`` looks again at what a rule has left, however little time has passed since. Raises StoreUnavailable.
        """
        told, state = RetentionRound(), await self.read()
        now = await self._store.now()
        lease = microseconds(limits.RETENTION_LEASE_SECONDS)
        if not at_once and state.holder not in ("", self._name) and 0 < state.until - now <= lease:
            return told
        held = False
        for mark, rule in self._marks.items():
            known = state.of(mark, rule)
            progress = known.again(now, 0.0) if anew else known
            page = await self._page(rule, progress, now)
            if not page and known.again(now) == known and 0 <= now - known.seen_at < _NOTED:
                continue
            if page and not held:
                state = replace(state, holder=self._name, until=now + lease)
                if not (held := await self._write(state, now)):
                    told.more = at_once  # another remover was quicker
                    return told
            progress = replace(progress, seen_at=now, begun_at=progress.begun_at or now)
            if page:
                progress = await self._apply(rule, page, progress, told)
            if page.in_all < limits.SWEEP_ROWS:
                progress = progress.again(now)
            now = await self._store.now()
            state = state.with_rule(mark, progress, now, self._marks)
            state = replace(state, until=now + lease if held else state.until)
            if not await self._write(state, now):
                told.more |= at_once
                return told  # another remover has our place now; what was removed here is counted by nobody
        if held:
            await self._write(replace(state, holder="", until=0), now)
        return told

    async def _write(self, state: RetentionState, now: int) -> bool:
        """Write the note over the version that was read; False if it has changed since."""
        note = self._note.next(state, now)
        written = note in await self._store.records(Note, [note])
        if written:
            self._note = note
        return written

    async def _page(self, rule: RetentionRule, progress: RuleProgress, now: int) -> FoundRows:
        """The next processes that ended long enough ago for the rule, whether it fits them or not."""
        to = rule.due_to(now)
        if to is None:
            return FoundRows()
        return await self._store.search(Search(ended_to=to, after=progress.place, limit=limits.SWEEP_ROWS))

    async def _apply(
        self, rule: RetentionRule, page: FoundRows, progress: RuleProgress, told: RetentionRound
    ) -> RuleProgress:
        """Archive and remove what the rule decides about; what cannot go now is left."""
        mine = [row for row in page if deciding(self.rules, row) is rule]
        left = await awaited(self._store, mine)
        ready = [row for row in mine if row.id not in left]
        if rule.folder is not None and ready:
            try:
                ready = await self._archive(rule, rule.folder, ready, told)
            except OSError as error:
                told.unwritable = (
                    f"the archive {rule.folder!r} cannot be written, so nothing is removed: {error.strerror or error}"
                )
                return progress
            left |= {row.id for row in mine} - {row.id for row in ready}
        # If we die here they are in the archive and in the database: they are archived once more, and then removed.
        removed = await self._remove(ready)
        if removed < len(ready):
            left |= await self._unchanged(ready)
        told.removed += removed
        told.left += len(left)
        told.more |= page.in_all == limits.SWEEP_ROWS
        return progress.passed(page, left, removed, 0 if rule.folder is None else len(ready))

    # -- archiving -----------------------------------------------------------------------------------------------

    async def _archive(
        self, rule: RetentionRule, folder: str, rows: Sequence[Process], told: RetentionRound
    ) -> list[Process]:
        """Write processes into one file; those that are in it, once it is durable. Raises OSError."""
        day = datetime.fromtimestamp(await self._store.now() / SECOND, UTC).date().isoformat()
        name = f"{day}-{self._new_id().hex()}{COMPRESSED if rule.compress else PLAIN}"
        file = ArchiveFile(Path(folder) / name)
        taken: list[Process] = []
        try:
            for portion in portions(rows, READ_AT_ONCE, EVENTS_READ):
                lines = await self._lines(portion)
                taken += [row for row in portion if row.id in lines]
                if lines:
                    await in_thread(file.write, list(lines.values()))
            await in_thread(file.finish)
        except BaseException:
            file.discard()
            raise
        if taken:
            told.files.append(str(file.path))
            told.archived += len(taken)
        return taken

    async def _lines(self, rows: Sequence[Process]) -> dict[bytes, bytes]:
        """The lines of those that are as they were, and can be opened here, by their ids."""
        ids = tuple(row.id for row in rows)
        whole = {row.id: row for row in await self._store.search(Search(ids=ids, limit=len(ids)))}
        same = [whole[row.id] for row in rows if row.id in whole and whole[row.id].version == row.version]
        lines = await asyncio.gather(*map(self._line, same))
        return {row.id: line for row, line in zip(same, lines, strict=True) if line is not None}

    async def _line(self, row: Process) -> bytes | None:
        """The line of a process, with its former runs; None if it cannot be told whole here and now."""
        try:
            one = await snapshot(self._store, row)
            if one is None or one.process.version != row.version or len(one.events) < row.events:
                return None
            former = await former_runs(self._store, row) if row.run > 1 else {}
            payloads = [*one.payloads, *(event.payload for run in former.values() for event in run)]
            if any(why_undecodable(raw) is not None for raw in payloads):
                return None
            record = archive.record_of(one.process, one.events, one.messages)
            stored = {run: archive.stored(events) for run, events in former.items()}
            return archive.written(replace(record, former=stored))
        except StoreUnavailable:
            raise
        except PerdureError:
            return None

    # -- removing ------------------------------------------------------------------------------------------------

    async def _remove(self, rows: Sequence[Process]) -> int:
        """Remove processes that are still as they were; how many were."""
        removed = 0
        alone = [[row] for row in rows if row.run > 1]  # a row counts the events of its last run only
        others = portions([row for row in rows if row.run == 1], REMOVED_AT_ONCE, limits.PRUNED_EVENTS)
        for portion in (*alone, *others):
            for row in portion:
                while row.run > 2 and (await self._store.prune(0, 0, 0, of=(row.id, row.version))).runs:
                    pass  # it has fewer former runs now: there may be too many for one transaction
            only = [(row.id, row.version) for row in portion]
            removed += (await self._store.prune(0, self._keys, 0, only=only)).processes
        return removed

    async def _unchanged(self, rows: Sequence[Process]) -> set[bytes]:
        """The ids of those that are there as they were: another session has locked them."""
        ids = tuple(row.id for row in rows)
        there = {row.id: row.version for row in await self._store.search(Search(ids=ids, limit=len(ids)))}
        return {row.id for row in rows if there.get(row.id) == row.version}


_NOTED = microseconds(limits.RETENTION_NOTED_SECONDS)
