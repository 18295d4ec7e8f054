"""A sealed store: a chain of codecs and an offload in front of a store; neither it nor the kernel knows of them.

On the way in every payload is sealed for its place, and large ones are put outside first; on the way out they are
fetched and opened. Keys, names, attributes, times and fences go through as they are. What cannot be opened is handed on
as :class:`~perdure.kernel.stored.Undecodable`, so that a bad payload harms only its own process. A start in the
caller's own transaction is sealed in the same way, outside of that transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from perdure import limits, logs
from perdure.errors import BadRecord, StoreUnavailable
from perdure.exhaustion import exhausted
from perdure.futures import in_thread
from perdure.kernel.claim import Claim, ClaimAnswer, Claimed
from perdure.kernel.commit import Commit, CommitAnswer, Start, StartAnswer, StartVerdict, Verdict
from perdure.kernel.event import Event, EventType, HistoryWanted
from perdure.kernel.message import LettersWanted, Message, MessageType, SendAnswer, SendVerdict
from perdure.kernel.process import Process, Status
from perdure.kernel.stored import Undecodable, first_trouble
from perdure.kernel.worker import Beat, BeatAnswer, WorkerRow
from perdure.logs import logger
from perdure.store.base import EVENT_BYTES, FoundRows, Pruned, Search, Store, every_message
from perdure.store.base import RowT as SmallRecord
from perdure.store.notifications import Listener, StopListening
from perdure.store.sealed import seal
from perdure.store.sealed.backend import SealedBackend
from perdure.store.sealed.blob import Blob, Blobs
from perdure.store.sealed.records import RecordOpener, RecordSealer
from perdure.store.sealed.seal import PlacedEvent, Seal

RecordT = TypeVar("RecordT", Start, Commit, Message)
AnswerT = TypeVar("AnswerT", StartAnswer, CommitAnswer, SendAnswer)
StoredT = TypeVar("StoredT", Process, Event, PlacedEvent, Message, Claimed)
ResultT = TypeVar("ResultT")

log = logger("store")

LARGE_BYTES = 256 * 1024
"""More than this is sealed or opened in a thread, so that the event loop goes on meanwhile."""

HISTORY_ROWS = 10_000


class SealedRecord(Struct, Generic[RecordT], frozen=True):
    """One record on its way in: as it came, as it will be stored, and the blobs that must be outside before."""

    record: RecordT
    sealed: RecordT
    blobs: tuple[Blob, ...]


class SealedStore(Store):
    """Wraps ``store``; ``blobs`` is where large payloads go, if anywhere."""

    def __init__(self, store: Store, chain: Seal, blobs: Blobs | None = None) -> None:
        self.store = store
        self.url = store.url
        self.seal = chain
        self.blobs = blobs
        self._backend = SealedBackend(store.backend, chain, blobs)
        self._late: dict[int, SealedRecord[Any]] = {}

    @property
    def backend(self) -> SealedBackend:
        """The backend of the store behind, with payloads sealed."""
        return self._backend

    async def open(self, *, migrate: bool = True) -> None:
        """Open the store behind; from now on our log hides what is sealed in it."""
        if self.seal.hides:
            logs.conceal(self)
        await self.store.open(migrate=migrate)
        if self.blobs is not None:
            self.blobs.open()

    async def close(self) -> None:
        """Close the store behind; what was not put outside yet was not written either."""
        if self.blobs is not None:
            await self.blobs.close()
        self._late.clear()
        await self.store.close()
        logs.reveal(self)

    # -- the way in ------------------------------------------------------------------------------------------------

    async def start(self, starts: Sequence[Start]) -> list[StartAnswer]:
        """See Store. A conflict is checked: the same input may have been sealed differently before."""
        answers = await self._in(starts, self.seal, self.store.start, _START_BUSY)
        for n, answer in enumerate(answers):
            if answer.verdict is StartVerdict.CONFLICT:
                answers[n] = await self._looked_into(starts[n], answer)
        return answers

    async def send(self, messages: Sequence[Message]) -> list[SendAnswer]:
        """See Store."""
        return await self._in(messages, self.seal, self.store.send, _SEND_BUSY)

    async def commit(self, commits: Sequence[Commit]) -> list[CommitAnswer]:
        """See Store."""
        return await self._in(commits, self.seal, self.store.commit, _COMMIT_BUSY)

    async def beat(self, beat: Beat) -> BeatAnswer:
        """See Store. Progress is never put outside: a beat waits for nothing."""
        if any(renewal.progress is not None for renewal in beat.renewals):
            sealing = RecordSealer(self.seal, None)
            beat = replace(beat, renewals=tuple(map(sealing.renewal, beat.renewals)))
        return await self.store.beat(beat)

    async def _in(
        self,
        records: Sequence[RecordT],
        chain: Seal,
        door: Callable[[Sequence[RecordT]], Awaitable[list[AnswerT]]],
        busy: AnswerT,
    ) -> list[AnswerT]:
        """Seal, put outside what is large, then write; records whose blobs are not there yet are answered *busy*."""
        late = {id(record): self._late.pop(id(record), None) for record in records}

        def pack() -> list[SealedRecord[RecordT]]:
            return [late[id(record)] or self._packed(record, chain) for record in records]

        sealed_records = await _done(pack, sum(map(seal.weight, records)))
        if self.blobs is None:
            return await door([sealed_record.sealed for sealed_record in sealed_records])
        await self.blobs.put(blob for sealed_record in sealed_records for blob in sealed_record.blobs)
        there = [self.blobs.there(sealed_record.blobs) for sealed_record in sealed_records]
        ready = [sealed_record for sealed_record, so in zip(sealed_records, there, strict=True) if so]
        self._late |= {
            id(sealed_record.record): sealed_record
            for sealed_record, so in zip(sealed_records, there, strict=True)
            if not so
        }
        self.blobs.forget(blob for sealed_record in ready for blob in sealed_record.blobs)
        # If we die here the blobs lie outside and nothing refers to them: a later sweep removes them.
        given = iter(await door([sealed_record.sealed for sealed_record in ready]) if ready else ())
        return [next(given) if so else busy for so in there]

    def _packed(self, record: RecordT, chain: Seal) -> SealedRecord[RecordT]:
        sealing = RecordSealer(chain, None if self.blobs is None else self.blobs.offload.above)
        sealed = sealing.record(record)
        return SealedRecord(record, sealed, tuple(sealing.blobs))

    async def _looked_into(self, start: Start, answer: StartAnswer) -> StartAnswer:
        """The answer to a start that conflicts: its input may be the stored one, sealed with another key or codec."""
        found = await self.store.search(Search(ids=(answer.id,)))
        if not found:
            return await self._among_kept(start, answer)
        bare = [replace(row, **dict.fromkeys(seal.FIELDS)) for row in found]
        [row] = await self._out(bare, RecordOpener.process)
        if isinstance(row.input, Undecodable):
            if isinstance(row.input.why, StoreUnavailable):
                return _START_BUSY
            raise BadRecord(
                f"whether the key {start.process.key!r} was used with this input is unknown: {row.input.why}"
            )
        verdict = StartVerdict.EXISTS if row.input == start.process.input else StartVerdict.CONFLICT
        return replace(answer, verdict=verdict)

    async def _among_kept(self, start: Start, answer: StartAnswer) -> StartAnswer:
        """The same for a pruned process, of which only a digest of the stored input is left."""
        for chain in self.seal.former():
            [other] = await self._in([start], chain, self.store.start, _START_BUSY)
            if other.verdict is not StartVerdict.CONFLICT:
                return other
        return answer

    # -- the way out -----------------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> ClaimAnswer:
        """See Store. A process of which something cannot be opened is answered with its trouble."""
        answer = await self.store.claim(claim)
        if not answer.claimed:
            return answer
        stored = answer.claimed if self.blobs is None else _portions(answer.claimed)
        # If we die here the rows are ours and no worker runs them: their leases lapse, and another worker claims them.
        opened = await self._out(stored, RecordOpener.claimed)
        for n, claimed in enumerate(opened):
            trouble = first_trouble(seal.payloads(claimed.process, claimed.events, claimed.messages))
            if trouble is not None:
                opened[n] = replace(claimed, trouble=trouble)
        return replace(answer, claimed=tuple(opened))

    async def search(self, search: Search) -> FoundRows:
        """See Store. Blobs are fetched for processes that are asked for by id or key, not for lists and sweeps."""
        named = search.ids is not None or search.key is not None
        stored = await self.store.search(search)
        found = FoundRows(await self._out(stored, RecordOpener.process, fetch=named))
        found.left = stored.left
        return found

    async def history(
        self,
        process: bytes,
        run: int,
        *,
        after: int = 0,
        limit: int = 1000,
        backward: bool = False,
        types: Sequence[EventType] = (),
        names: Sequence[str] = (),
    ) -> list[Event]:
        """See Store."""
        events = await self.store.history(
            process, run, after=after, limit=limit, backward=backward, types=types, names=names
        )
        return await self._out(events, partial(RecordOpener.event, process=process, run=run))

    async def histories(self, wants: Sequence[HistoryWanted], *, most: int) -> dict[bytes, list[Event]]:
        """See Store."""
        stored = await self.store.histories(wants, most=most)
        if self.blobs is not None:
            stored = _within(stored, most)
        runs = {want.process: want.run for want in wants}
        placed = [PlacedEvent(process, runs[process], event) for process, events in stored.items() for event in events]
        told: dict[bytes, list[Event]] = {process: [] for process in stored}
        for one in await self._out(placed, RecordOpener.placed):
            told[one.process].append(one.event)
        return told

    async def messages(
        self, wants: Sequence[tuple[bytes, int]] = (), *, most: int = 0, waiting: Sequence[LettersWanted] = ()
    ) -> list[Message]:
        """See Store."""
        found: Sequence[Message] = await self.store.messages(wants, most=most, waiting=waiting)
        if self.blobs is not None and waiting:
            found = _portion(found, limits.BATCH_BYTES, of_each_name=True)
        elif self.blobs is not None and most:
            found = _portion(found, most)
        return await self._out(found, RecordOpener.message)

    async def _out(
        self, stored: Sequence[StoredT], open: Callable[[RecordOpener, StoredT], StoredT], *, fetch: bool = True
    ) -> list[StoredT]:
        """Open records; if some payloads are kept outside, fetch these and open the records again."""
        opening = RecordOpener(self.seal, offload=self.blobs is not None)

        def opened() -> list[StoredT]:
            return [open(opening, one) for one in stored]

        size = sum(map(seal.weight, stored))
        found = await _done(opened, size)
        if self.blobs is not None and opening.wanted and fetch:
            opening.fetched = await self.blobs.fetch(opening.wanted)
            size += sum(len(blob) for blob in opening.fetched.values() if isinstance(blob, bytes))
            found = await _done(opened, size)
        return found

    # -- what goes through -----------------------------------------------------------------------------------------

    async def now(self) -> int:
        """See Store."""
        return await self.store.now()

    async def enlist(self, worker: WorkerRow, silence: int) -> WorkerRow:
        """See Store."""
        return await self.store.enlist(worker, silence)

    async def retire(self, worker: bytes, beats: int | None, died: bool) -> bool:
        """See Store."""
        return await self.store.retire(worker, beats, died)

    async def workers(self, *, ended: bool = False, ids: Collection[bytes] | None = None) -> list[WorkerRow]:
        """See Store."""
        return await self.store.workers(ended=ended, ids=ids)

    async def count(self, search: Search) -> list[tuple[str, Status, int]]:
        """See Store."""
        return await self.store.count(search)

    async def records(self, table: type[SmallRecord], changes: Sequence[SmallRecord] = ()) -> list[SmallRecord]:
        """See Store. These rows hold no payloads."""
        return await self.store.records(table, changes)

    def watch(self, listener: Listener) -> StopListening:
        """See Store."""
        return self.store.watch(listener)

    # -- removing --------------------------------------------------------------------------------------------------

    async def prune(
        self,
        finished: int,
        keys: int,
        limit: int,
        behind: bytes | None = None,
        *,
        of: tuple[bytes, int] | None = None,
        only: Sequence[tuple[bytes, int]] = (),
    ) -> Pruned:
        """See Store. Also removes old blobs to which nothing refers (any more), unless some processes are named."""
        pruned = await self.store.prune(finished, keys, limit, behind, of=of, only=only)
        if self.blobs is not None and of is None and not only:
            try:
                await self.blobs.sweep(self._referred_to, limit)
            except Exception as error:  # whatever an offload raises: nothing is lost, a later sweep finds them again
                log.warning(
                    "blobs that are not needed any more cannot be removed now: %s: %s", type(error).__name__, error
                )
        return pruned

    async def _referred_to(self, processes: Sequence[bytes]) -> dict[bytes, set[str]]:
        """The names of the blobs that these processes refer to, as far as they exist."""
        rows = await self.store.search(Search(ids=tuple(processes), limit=len(processes)))
        names: dict[bytes, set[str]] = {}
        for row in rows:
            raws = list(seal.payloads(row, (), ()))
            async for messages in every_message(self.store, [(row.id, 0)], most=limits.BATCH_BYTES):
                raws += [message.payload for message in messages if seal.named(message.payload) is not None]
            for run in range(1, row.run + 1):
                after = 0
                while events := await self.store.history(row.id, run, after=after, limit=HISTORY_ROWS):
                    raws += [event.payload for event in events]
                    after = events[-1].number
            names[row.id] = {name for raw in raws if (name := seal.named(raw)) is not None}
        return names


def _portion(messages: Sequence[Message], most: int, *, of_each_name: bool = False) -> list[Message]:
    """As many messages as the store would have read if it held all of their bytes, and all orders to end.

    Letters that wait are read up to so many bytes ``of_each_name`` of each process.
    """
    taken = []
    left: defaultdict[tuple[bytes, str] | None, int] = defaultdict(lambda: most)
    for message in messages:
        name = (message.process, message.name) if of_each_name else None
        if left[name] > 0 or message.type is MessageType.TERMINATE:
            taken.append(message)
            left[name] -= seal.size(message.payload)
    return taken


def _within(histories: dict[bytes, list[Event]], most: int) -> dict[bytes, list[Event]]:
    """As many histories as the store would have read if it held all of their bytes, in the order of the ids."""
    taken: dict[bytes, list[Event]] = {}
    for process in sorted(histories):
        if most <= 0:
            break
        taken[process] = histories[process]
        most -= sum(EVENT_BYTES + seal.size(event.payload or b"") for event in taken[process])
    return taken


def _portions(claimed: Sequence[Claimed]) -> list[Claimed]:
    """The same for the unheard messages of all processes of a claim together, in the order of their ids."""
    seen = {one.process.id: one.process.seen for one in claimed}
    every = sorted((message for one in claimed for message in one.messages), key=lambda one: (one.process, one.number))
    taken = _portion([message for message in every if message.number > seen[message.process]], limits.HEARD_BYTES)
    unheard = defaultdict(list)
    for message in taken:
        unheard[message.process].append(message)
    told = []
    for one in claimed:
        received = [message for message in one.messages if message.number <= one.process.seen]
        messages = (*received, *unheard[one.process.id])
        told.append(replace(one, messages=messages, cut=one.cut or len(messages) < len(one.messages)))
    return told


async def _done(work: Callable[[], list[ResultT]], size: int) -> list[ResultT]:
    """Do the work; in a thread of its own if there are so many bytes that the event loop would stand still."""
    if size <= LARGE_BYTES:
        return work()
    try:
        return await in_thread(work)
    except RuntimeError as error:
        if exhausted(error) is None:
            raise
        return work()  # the system refuses a thread: a pause of the event loop is the lesser evil


_START_BUSY = StartAnswer(StartVerdict.BUSY, b"")
_COMMIT_BUSY = CommitAnswer(Verdict.BUSY)
_SEND_BUSY = SendAnswer(SendVerdict.BUSY)
