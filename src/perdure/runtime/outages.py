"""Outages: what a worker knows of the kinds that are held, what it tells the store, and which canaries it lets through.

Each worker reads the notes when it begins. One with rules reads them once a second from then on, and counts how its
processes end. One without hears of the outages that people begin from the sweep log, which reads the notes anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from perdure import limits
from perdure.errors import StoreUnavailable
from perdure.kernel.breaker import HALF_OPEN, Probed
from perdure.kernel.claim import Claimed
from perdure.kernel.event import Event
from perdure.kernel.failure import Failure
from perdure.kernel.fingerprint import cause_of
from perdure.kernel.note import Note
from perdure.kernel.outage import PREFIX, Canary, FailedAlike, OutageRule, OutageState
from perdure.kernel.process import Process, Status
from perdure.loop import Loop
from perdure.runtime.claimer import Claimer
from perdure.runtime.events import Ends
from perdure.runtime.parts import WorkerParts
from perdure.runtime.shortage import Shortages
from perdure.store.base import Search

Hosted = tuple[tuple[str, str], ...]


class NoteChange(NamedTuple):
    """A change of a note, with the state before it, what it says, and the canary that it grants."""

    was: OutageState
    change: Note
    failures: Mapping[str, FailedAlike]
    probed: Sequence[Probed]
    granted: int | None


class OutageWatch:
    """The kinds that this worker holds back; it hears of the end of each process that it had."""

    def __init__(self, parts: WorkerParts, ends: Ends) -> None:
        self._store = parts.store
        self._registry = parts.registry
        self._alerts = parts.alerts
        self._incarnation = parts.incarnation
        self._time = parts.time
        self._ends = ends
        self.rules: Mapping[str, OutageRule] = parts.outages
        self._held: set[str] = set()
        self._failures: dict[str, dict[str, FailedAlike]] = {}
        self._probed: dict[str, list[Probed]] = {}
        self._tried: dict[str, NoteChange] = {}  # what was to be written, until it is known whether it was
        self._granted: dict[str, int] = {}  # canaries that may be claimed, each with ``opened`` of its circuit
        self._again: dict[str, bytes] = {}  # of a granted canary: the process that is due again, and goes on as it
        self._canaries: dict[bytes, Canary] = {}
        self._parted: dict[bytes, Canary] = {}
        self._let_go: dict[str, int] = {}
        self._claimer: Claimer | None = None
        self._shortages: Shortages | None = None
        self._looks = False
        self.loop = Loop("outages", self._tick, parts.committer.outage)

    async def begin(self, claimer: Claimer, shortages: Shortages) -> None:
        """Hold back kinds from now on: ``claimer`` claims none, as ``shortages`` say that they are not served."""
        self._claimer, self._shortages = claimer, shortages
        with suppress(StoreUnavailable):  # the loop, or the sweep log, looks again
            await self.look()  # an outage that stands holds from the first claim on
        if self.rules:
            self._look_often()

    async def stop(self) -> None:
        """Look no longer."""
        await self.loop.stop()

    def _look_often(self) -> None:
        if not self._looks:
            self._looks = True
            self.loop.start()

    # -- what the worker tells ---------------------------------------------------------------------------------

    def ended(self, process: Process, sent: float) -> None:
        """A process of this worker has ended or was parked: count a failure, and tell what became of a canary."""
        self._ends.ended(process, sent)
        failed = process.status in (Status.FAILED, Status.BROKEN)
        canary = self._canaries.pop(process.id, None) or self._parted.pop(process.id, None)
        if not failed and canary is None:
            return
        if canary is not None and process.status is Status.CANCELLED:
            self._parted[process.id] = canary  # it was not tried to its end: the next look lets another through
            return
        failure = Failure.shown(process.error or b"") if failed else None
        if canary is not None:
            error = "" if failure is None else failure.origin[1]
            self._probed.setdefault(canary.kind, []).append(Probed(not failed, canary.opened, error))
            self.loop.wake()
        elif failure is not None and process.kind in self.rules:
            counts, fingerprint = self._failures.setdefault(process.kind, {}), cause_of(process, failure).fingerprint
            before = counts.get(fingerprint)
            counts[fingerprint] = FailedAlike(1 if before is None else before.number + 1, failure.origin[1])
            self.loop.wake()

    def answered(self, id: bytes, events: Sequence[Event]) -> None:
        """See Ends."""
        self._ends.answered(id, events)

    def parted(self, id: bytes) -> None:
        """A process was let go: of a canary, its row tells whether it waits now, and so has got as far as that."""
        self._ends.parted(id)
        if (canary := self._canaries.pop(id, None)) is not None:
            self._parted[id] = canary

    # -- claims ------------------------------------------------------------------------------------------------

    def holds(self, kind: str) -> bool:
        """Whether a kind is held back here: ordinary claims leave it out."""
        return kind in self._held

    def offers(self) -> Iterator[tuple[Hosted, int, bytes | None]]:
        """What may be claimed of kinds that are held back: granted canaries, and what is let go this second."""
        for kind in list(self._held):
            many = min(1 if kind in self._granted else self._let_go.get(kind, 0), self._places(kind))
            pairs = tuple(pair for pair in self._registry.hosted if pair[0] == kind)
            if many > 0 and pairs and not self._is_short_for(kind):
                yield pairs, many, self._again.get(kind)

    def _is_short_for(self, kind: str) -> bool:
        """Whether this worker lacks what processes of a kind need: then it lets none through."""
        return self._shortages is not None and kind in self._shortages.unserved

    def _places(self, kind: str) -> int:
        """How many more processes of a kind this worker may hold: its queue may have a limit."""
        queue = self._registry.queues.get(kind)
        if queue is None or queue.at_most is None or self._claimer is None:
            return limits.CLAIM_ROWS
        return queue.at_most - sum(one.process.kind == kind for one in self._claimer.scheduler.instances.values())

    def claimed(self, kind: str, claimed: Iterable[Claimed]) -> None:
        """These were claimed by such an offer, and are not held yet. A granted canary waits for one that is due.

        What is over its deadline is no canary: its code is not run any more.
        """
        rows = [one.process for one in claimed]
        if kind not in self._granted:
            self._let_go[kind] = max(self._let_go.get(kind, 0) - len(rows), 0)
            return
        self._again.pop(kind, None)
        now = self._time.now()
        if tried := [row for row in rows if row.deadline is None or row.deadline > now]:
            opened = self._granted.pop(kind)
            self._canaries |= {row.id: Canary(kind, opened, row.events) for row in tried}

    # -- the store ---------------------------------------------------------------------------------------------

    async def _tick(self) -> float:
        await self.look()
        often = self.rules or self._held
        return limits.OUTAGE_LOOK_SECONDS if often else limits.SWEEP_LOG_SECONDS

    async def look(self) -> None:
        """Tell the store what has happened here, and see which kinds are held."""
        await self._look_at_parted()
        notes = {note.name: note for note in await self._store.records(Note)}
        now = await self._store.now()
        self._settle(notes, answered=False)
        failures, self._failures = self._failures, {}
        probed, self._probed = self._probed, {}
        # What changes nothing counts no longer: only a change that is not written is decided again.
        self._tried = self._decided(notes, failures, probed, now)
        if self._tried:
            # If we die here a canary may be granted that nobody lets through: it is given up after a while.
            changes = [tried.change for tried in self._tried.values()]
            notes = {note.name: note for note in await self._store.records(Note, changes)}
            self._settle(notes, answered=True)
        self.seen(notes, now)

    def _settle(self, notes: Mapping[str, Note], *, answered: bool) -> None:
        """See which changes were written; what they said is told again if they were refused.

        Of a change of which nobody knows it is not, as nothing may count twice.
        """
        settled, self._tried = self._tried, {}
        for kind, tried in settled.items():
            written = tried.change.written(notes, answered=answered)
            if written is False:
                later = self._failures.setdefault(kind, {})
                for fingerprint, failed in tried.failures.items():
                    more = later[fingerprint].number if fingerprint in later else 0
                    later[fingerprint] = FailedAlike(failed.number + more, failed.error)
                self._probed.setdefault(kind, []).extend(tried.probed)
                continue
            self._told(kind, tried, notes[tried.change.name])
            if written and tried.granted is not None:
                self._granted[kind] = tried.granted

    async def _look_at_parted(self) -> None:
        """See what has become of the canaries that were let go here.

        One that tells nothing is let through once more if it is due; if it has ended or is held, another one is.
        """
        if not (asked := tuple(self._parted)):
            return
        rows = {row.id: row for row in await self._store.search(Search(ids=asked, limit=len(asked)))}
        now = await self._store.now()
        for id in asked:
            row, canary = rows.get(id), self._parted.get(id)
            if canary is None:
                continue
            if row is not None and (told := canary.told(row, now)) is not None:
                self._probed.setdefault(canary.kind, []).append(told)
                del self._parted[id]
            elif (row is None or canary.void(row, now)) and canary.kind not in self._granted:
                # If the outage is not where it was, or the time of this canary is over, ``seen`` takes the grant back.
                self._granted[canary.kind] = canary.opened
                if row is not None and row.status is Status.RUNNING:
                    self._again[canary.kind] = id
                del self._parted[id]

    def _decided(
        self,
        notes: Mapping[str, Note],
        failures: Mapping[str, Mapping[str, FailedAlike]],
        probed: Mapping[str, Sequence[Probed]],
        now: int,
    ) -> dict[str, NoteChange]:
        """The notes that change, by kind."""
        changes: dict[str, NoteChange] = {}
        hosted = {kind for kind, _ in self._registry.hosted}
        for kind, rule in self.rules.items():
            note = notes.get(PREFIX + kind, Note(PREFIX + kind))
            state = note.read(OutageState)
            failed, canaries, granted = failures.get(kind, {}), probed.get(kind, ()), None
            after = rule.failed(state, failed, now)
            for canary in canaries:
                after = rule.probed(after, canary, now)
            if kind in hosted and kind not in self._granted and (probing := rule.probing(after, now)) is not None:
                after, granted = probing, probing.circuit.opened
            if after != state:
                circuit = replace(after.circuit, worker=self._incarnation.id.hex())
                change = note.next(replace(after, circuit=circuit), now)
                changes[kind] = NoteChange(state, change, failed, canaries, granted)
        return changes

    def seen(self, notes: Mapping[str, Note], now: int) -> None:
        """Hold back the kinds that these notes say are held, or let go; claim others again."""
        claimer, shortages = self._claimer, self._shortages
        if claimer is None or shortages is None:
            return
        hosted, held = {kind for kind, _ in self._registry.hosted}, set()
        for name, note in notes.items():
            kind = name.removeprefix(PREFIX)
            if not name.startswith(PREFIX) or kind not in hosted:
                continue
            state = note.read(OutageState)
            if (allowed := state.allowance(now)) is not None:
                held.add(kind)
                self._let_go[kind] = allowed
            circuit = state.circuit
            if self._granted.get(kind) != circuit.opened or circuit.state != HALF_OPEN or now >= (circuit.until or 0):
                self._granted.pop(kind, None)
                self._again.pop(kind, None)
        over, self._held = self._held - held, held
        shortages.hold_back(held)
        if held:
            self._look_often()
        if over or self._granted or any(self._let_go.get(kind) for kind in held):
            claimer.wake()

    def _told(self, kind: str, tried: NoteChange, found: Note) -> None:
        """Tell of an outage that has begun or ended, if the note that is found has that change, and stands so still."""
        was, state, now = tried.was, tried.change.read(OutageState), found.read(OutageState)
        if was.held != state.held == now.held and state.changes[-1] in now.changes:
            self._alerts.outage(kind, state.circuit, state.fingerprint, tried.change.version)
