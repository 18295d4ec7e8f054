"""The archive: processes are written to lines of JSON, and taken over from them, also into another database.

An import may be broken off anywhere and begun again: a process has the same id there, so that it is taken over once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure import limits
from perdure.client import validation
from perdure.client.finding.finder import Finder
from perdure.client.snapshot import snapshots, within_reach
from perdure.client.whole_rows import cut
from perdure.clock import microseconds
from perdure.errors import BadRecord, IllegalMove, PerdureError, StoreUnavailable
from perdure.futures import asked
from perdure.kernel import archive, child, fork, redaction
from perdure.kernel.admission import open_children, start_of
from perdure.kernel.archive import Archived
from perdure.kernel.commit import Start, StartAnswer, StartVerdict
from perdure.kernel.kind import PLACE, TAKEN_OVER
from perdure.kernel.names import check_name, id_text
from perdure.kernel.process import Process
from perdure.kernel.redaction import Redact
from perdure.kernel.stored import Undecodable
from perdure.kernel.transition import Sender
from perdure.logs import logger
from perdure.store.base import Search, Store
from perdure.store.snapshot import Snapshot, former_runs, snapshot

if TYPE_CHECKING:
    from perdure.client.client import Client

log = logger("process")
AT_ONCE = 100
"""How many lines are taken over together."""


@dataclass(frozen=True, slots=True)
class NotImported:
    """A line of which nothing was taken over, and ``why``. ``process`` is the id in it, empty if it is damaged.

    ``file`` is the name of its file, if `perdure import` has read several.
    """

    line: int
    process: str
    why: str
    file: str = ""


@dataclass(slots=True)
class Imported:
    """What has become of the lines of an import.

    ``taken`` processes are new here, ``there`` were here already, from an import before. ``refused`` are the other
    lines. ``waiting`` are ids of processes that wait for a child which is not here: import that, too. ``unknown`` are
    ids of those whose children are not known, since a record of them is sealed or damaged: import the file once more
    where the codecs are, so that children which have ended answer them.
    """

    taken: int = 0
    there: int = 0
    refused: list[NotImported] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether every line is here now, and nothing waits for what is not."""
        return not (self.refused or self.waiting or self.unknown)


class Archive:
    """Processes as lines of JSON: ``engine.archive``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def export(
        self,
        where: str = "",
        *,
        kind: str | None = None,
        redact: Iterable[str] = (),
        redact_with: Redact | None = None,
        former: bool = False,
    ) -> AsyncIterator[bytes]:
        """Give the processes that fit a query, each as one line, newest first; see ``perdure export``.

        Each is as it was at one commit. The children for which one waits follow it, whether they fit or not. ``redact``
        names parts whose texts and numbers are replaced: ``["input", "attributes.card"]``, also where a name holds dots
        itself; ``redact_with`` is called for each with its name and value instead, and returns the value to be written.
        With ``former`` the events of former runs are written too. What this program cannot open is written sealed.
        Raises InvalidInput, StoreUnavailable.
        """
        validation.outside_a_turn()
        parts = redaction.checked(redact)
        exporter = _Exporter(self._client.store, Finder(self._client.store, Search(kind=kind), where))
        async for one in exporter.found():
            record = archive.record_of(one.process, one.events, one.messages)
            if former and one.process.run > 1:
                runs = await former_runs(self._client.store, one.process)
                record = replace(record, former={run: archive.stored(events) for run, events in runs.items()})
            yield archive.written(redaction.redacted(record, parts, redact_with))

    async def load(self, lines: Iterable[bytes] | AsyncIterable[bytes], *, copy: str | None = None) -> Imported:
        """Take over the processes of an export, each under its own id, those that are here already only once.

        Ended ones stay ended; a held or broken one waits for a person; the others go on, so hold them before the export
        where they would go on twice. With ``copy`` unfinished ones become forks of the same past, under new ids that
        follow from that name: the same copy is made once. A line that is damaged, or clashes with what is here, is
        refused as a whole, and the others are taken. Raises InvalidInput (InvalidKey), StoreUnavailable.
        """
        validation.outside_a_turn()
        if copy is not None:
            check_name(copy, "the name of the copy")
        importer = _Importer(self._client, copy)
        portion: dict[bytes, Archived] = {}
        number = 0
        async for line in _awaited(lines):
            number += 1
            one = importer.read(line, number)
            if one is None:
                continue
            if len(portion) == AT_ONCE or one.process.id in portion:  # a second line of a process finds the first there
                await importer.take([*portion.values()])
                portion = {}
            portion[one.process.id] = one
        await importer.take([*portion.values()])
        await importer.settle()
        return importer.outcome


async def _awaited(lines: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(lines, AsyncIterable):
        async for line in lines:
            yield line
    else:
        for line in lines:
            yield line


class _Exporter:
    """Finds what is to be exported: what fits the query, and the children for which it waits; each once."""

    def __init__(self, store: Store, finder: Finder) -> None:
        self._store = store
        self._finder = finder
        self._kin: set[bytes] = set()

    async def found(self) -> AsyncIterator[Snapshot]:
        async for portion in snapshots(self._store, self._finder):
            for one in portion:
                async for each in self._family(one):
                    yield each

    async def _family(self, first: Snapshot) -> AsyncIterator[Snapshot]:
        waiting = [first]
        while waiting:
            one = waiting.pop()
            if one.process.id in self._kin:
                continue
            if one.process.parent is not None:  # it may be found a second time, by its parent
                self._kin.add(one.process.id)
            yield one
            if not one.process.final:
                waiting += await self._children(one)

    async def _children(self, parent: Snapshot) -> list[Snapshot]:
        known, every = open_children(parent.events)
        if not every:
            log.warning(
                "not all children of process %s follow it, since what is recorded of them cannot be read here: "
                "export where the codecs are, or without a query",
                id_text(parent.process.id),
            )
        ids = [id for id in known if id not in self._kin]
        found: list[Snapshot] = []
        for portion in cut(ids, limits.LIST_ROWS):
            for row in await self._store.search(Search(ids=portion, limit=len(portion))):
                one = await snapshot(self._store, row)
                found += [] if one is None else [within_reach(one)]
        return found


class _Importer:
    """Takes over one line after another."""

    def __init__(self, client: Client, copy: str | None) -> None:
        self._client = client
        self._copy = copy
        self._parents: dict[bytes, tuple[tuple[bytes, ...], bool]] = {}
        self.outcome = Imported()

    def read(self, line: bytes, number: int) -> Archived | None:
        """What a line holds; a damaged one is noted."""
        try:
            return archive.read(line, number)
        except PerdureError as error:
            self.outcome.refused.append(NotImported(number, "", str(error)))
            return None

    async def take(self, portion: Sequence[Archived]) -> None:
        """Take over what is not here yet; no process stands there twice."""
        store, now = self._client.store, await self._client.store.now()
        starts = [(one, start) for one in portion if (start := self._start(one, now)) is not None]
        ids = tuple(start.process.id for _, start in starts)
        there = {row.id: row for row in await store.search(Search(ids=ids, limit=len(ids)))} if ids else {}
        fresh = [(one, start) for one, start in starts if self._is_new(one, start, there)]
        answers = await asyncio.gather(*(self._taken(one, start) for one, start in fresh))
        # If we die here these processes are stored: the next import finds them by their ids.
        here = await self._here([start.process.id for _, start in fresh if start.process.key is not None])
        for (one, start), answer in zip(fresh, answers, strict=True):
            if answer is None:
                continue
            if start.process.key is not None and answer.id == start.process.id and answer.id not in here:
                kept = "retention has removed it here, and its key is kept: wait for the key retention, or use another"
                self._refuse(one, f"{kept} database")
            else:
                self._answered(one, start, answer)

    async def _here(self, ids: Sequence[bytes]) -> set[bytes]:
        """Those that are there: while its key is kept, a removed process is answered as if it had been taken."""
        rows = await self._client.store.search(Search(ids=tuple(ids), limit=len(ids))) if ids else ()
        return {row.id for row in rows}

    async def _taken(self, one: Archived, start: Start) -> StartAnswer | None:
        """Store one; None if it cannot be stored here, which is noted."""
        try:
            return await self._stored(start)
        except BadRecord as error:
            self._refuse(one, self._sealed() if _is_sealed(start) else str(error))
            return None

    def _sealed(self) -> str:
        """What to do about a line with sealed values. They are sealed for their process: a copy could not open them."""
        if self._copy is not None:
            return "its values are sealed for the original: export it where its codecs are, which writes them open"
        return (
            "its values are sealed, and an engine with codecs would seal them again: import this line once without "
            "codecs (PERDURE_SEAL unset). Engines with the codecs that sealed it can open it then"
        )

    async def _stored(self, start: Start) -> StartAnswer:
        """Store one. Where its kind has limits, it comes with its place if it has not ended: it has begun already."""
        answer: StartAnswer = await asked(self._client.doors.start, start)
        if answer.verdict is StartVerdict.LIMITED:
            share = TAKEN_OVER if start.process.final else PLACE
            placed = replace(start, process=replace(start.process, share=share))
            answer = await asked(self._client.doors.start, placed)
        return answer

    def _start(self, one: Archived, now: int) -> Start | None:
        try:
            idle_at = now + microseconds(limits.IDLE_CHECK_SECONDS)
            return start_of(one, now=now, idle_at=idle_at) if self._copy is None else self._copied(one, now)
        except PerdureError as error:
            self._refuse(one, str(error))
            return None

    def _copied(self, one: Archived, now: int) -> Start:
        if one.process.final:
            raise IllegalMove("it has ended: only a process that goes on is copied; import it under its own id")
        start_of(one, now=now, idle_at=now)  # it is refused for the same reasons
        row, name = one.process, f"{id_text(one.process.id)} {self._copy}"
        chance = blake2b(name.encode(), digest_size=10, person=b"copy").digest()
        id = bytes((*row.id[:6], 0x70 | chance[0] & 0x0F, chance[1], 0x80 | chance[2] & 0x3F, *chance[3:]))
        sender = Sender(why=f"copied by an import as {self._copy}", origin="import")
        return fork.forked(row, one.events, one.messages, None, sender, id=id, key=row.key, code=row.code, now=now)

    def _is_new(self, one: Archived, start: Start, there: Mapping[bytes, Process]) -> bool:
        row = there.get(start.process.id)
        if row is None:
            return True
        if (row.kind, row.created_at or 0) != (start.process.kind, start.process.created_at or row.created_at):
            self._refuse(one, f"the id {id_text(row.id)} belongs to another process here, of kind {row.kind!r}")
        else:
            self.outcome.there += 1
            self._remember(one, start)
        return False

    def _answered(self, one: Archived, start: Start, answer: StartAnswer) -> None:
        if answer.verdict is StartVerdict.CREATED and answer.id == start.process.id:
            self.outcome.taken += 1
            self._remember(one, start)
        elif answer.verdict is StartVerdict.REFUSED:
            raise StoreUnavailable("another worker took this one for dead and ended it; import the file again")
        else:
            key, holder = start.process.key, id_text(answer.id)
            self._refuse(one, f"its key {key!r} belongs to process {holder} here; remove that, or release its key")

    def _refuse(self, one: Archived, why: str) -> None:
        self.outcome.refused.append(NotImported(one.line, id_text(one.process.id), why))

    def _remember(self, one: Archived, start: Start) -> None:
        """A copy starts its children anew; any other process waits for those that it had."""
        if self._copy is None and not start.process.final:
            children, every = open_children(start.events)
            if children or not every:
                self._parents[start.process.id] = tuple(children), every

    async def settle(self) -> None:
        """Tell parents of children that had ended before the parent was here; note those that wait for nobody."""
        for parent, (children, every) in self._parents.items():
            missing = set(children)
            for portion in cut(children, limits.LIST_ROWS):
                rows = await self._client.store.search(Search(ids=portion, limit=len(portion)))
                missing -= {row.id for row in rows}
                answers = [answer for row in rows if row.parent == parent for answer in child.answer(row)]
                # If we die here the answer is sent again by the next import: it is known by the child's id.
                await asyncio.gather(*(self._client.parts.outgoing.sent(answer) for answer in answers))
            if missing or not every:
                await self._note(parent, missing)

    async def _note(self, parent: bytes, missing: set[bytes]) -> None:
        """Note a parent for which children are missing, unless it has ended here, or they have answered it here."""
        rows = await self._client.store.search(Search(ids=(parent,)))
        if not rows or rows[0].final:
            return
        [row] = rows
        known, every = open_children(await self._client.store.history(parent, row.run, limit=row.events))
        if not missing.isdisjoint(known):
            self.outcome.waiting.append(id_text(parent))
        elif not every:
            self.outcome.unknown.append(id_text(parent))


def _is_sealed(start: Start) -> bool:
    """Whether the line held a payload that was not opened when it was written."""
    row = start.process
    raws = [row.input, row.attributes, row.state, row.progress, row.result, row.error]
    raws += [event.payload for event in start.events]
    raws += [message.payload for message in start.messages]
    return any(isinstance(raw, Undecodable) for raw in raws)
