"""The sweep log: every pass of every sweep is recorded in the store, and people are told when none happens any more.

A worker gathers what its passes have done, and adds it to the notes of the sweeps. A pass that found nothing is written
only if no worker has recorded one just before: all workers together write a few rows in ten seconds, however many they
are. The same look tells of sweeps that no worker passes, and runs in a loop of its own: no sweep that hangs stops it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from perdure import limits
from perdure.clock import microseconds
from perdure.kernel.note import Note
from perdure.kernel.sweep_pass import PREFIX, Passes
from perdure.logs import logger
from perdure.loop import Loop
from perdure.runtime.sweep_round import SweepRound
from perdure.runtime.sweeps.context import SweepContext

log = logger("recovery")

AWAY_SECONDS = limits.SWEEP_SILENT_SECONDS / 2
"""After so long without a look the database or this worker was away, and so may the sweeps of all workers have been."""


class SweepChange(NamedTuple):
    """A change of a sweep's note: the passes that it adds, and, if it is an alarm, how long the silence was."""

    change: Note
    ours: Passes
    silent: int


class SweepLog:
    """What this worker knows of the passes of sweeps. ``periods`` has the seconds between two passes of each."""

    def __init__(self, context: SweepContext, periods: Mapping[str, float]) -> None:
        self._incarnation = context.incarnation
        self._store = context.store
        self._time = context.time
        self._machine = context.machine
        self._alerts = context.alerts
        self._events = context.events
        self._periods = periods
        self._gathered: dict[str, Passes] = {}
        self._tried: dict[str, SweepChange] = {}  # what was to be written, until it is known whether it was
        self._under_way: dict[str, SweepRound] = {}
        self._told_of: set[SweepRound] = set()
        self._since: int | None = None  # since when this worker looks: before that it knows of no silence
        self._looked = 0
        first = limits.SWEEP_LOG_SECONDS
        self.loop = Loop("sweep log", self._tick, context.committer.outage, first_after=first)

    def began(self, sweep: str, round: SweepRound) -> None:
        """A pass has begun here."""
        self._under_way[sweep] = round

    def passed(self, sweep: str, round: SweepRound, changed: int) -> None:
        """A pass has ended here, and has changed so many rows."""
        del self._under_way[sweep]
        took = microseconds(self._time.monotonic() - round.since)
        before, now = self._gathered.get(sweep, Passes()), self._time.now()
        self._gathered[sweep] = before.passed(
            now, self._machine.name(), took, round.seen, changed, round.left, microseconds(self._periods[sweep])
        )

    def failed(self, sweep: str, error: Exception) -> None:
        """A pass has ended here by an error. Its class is kept, and not its text, which may be a secret."""
        del self._under_way[sweep]
        self._gathered[sweep] = self._gathered.get(sweep, Passes()).failed(self._time.now(), type(error).__name__)

    async def _tick(self) -> float:
        await self.look()
        return limits.SWEEP_LOG_SECONDS * (0.75 + self._machine.random() / 4)

    async def look(self) -> None:
        """Record what was gathered here, and tell of the sweeps that nobody passes."""
        self._tell_of_hung()
        notes = {note.name: note for note in await self._store.records(Note)}
        now = await self._store.now()
        self._settle(notes, answered=False)
        self._events.noted(notes, now)
        if self._since is None or now - self._looked > microseconds(AWAY_SECONDS):
            self._since = now
        self._looked = now
        for sweep, period in self._periods.items():
            note, ours = notes.get(PREFIX + sweep, Note(PREFIX + sweep)), self._gathered.get(sweep, Passes())
            known = note.read(Passes)
            together = known.and_then(ours)
            after = self._alarmed(together, period, now)
            alarm = after != together
            if alarm or ours.worth_writing(known, note.changed_at, now):
                self._gathered.pop(sweep, None)
                silent = now - max(after.at, self._since) if alarm else 0
                self._tried[sweep] = SweepChange(note.next(after, now), ours, silent)
        if self._tried:
            changes = [tried.change for tried in self._tried.values()]
            # If we die here nobody was told which are silent: a worker tells of them again after a while.
            notes = {note.name: note for note in await self._store.records(Note, changes)}
            self._settle(notes, answered=True)

    def _settle(self, notes: Mapping[str, Note], *, answered: bool) -> None:
        """See which changes were written; passes that were not are added later. Of what nobody knows none are.

        People are told of a silence if the alarm stands in the note, whoever has written that since, and it goes on.
        """
        settled, self._tried = self._tried, {}
        for sweep, (change, ours, silent) in settled.items():
            if change.written(notes, answered=answered) is False:
                self._gathered[sweep] = ours.and_then(self._gathered.get(sweep, Passes()))
            elif silent and _silence(notes[change.name]) == _silence(change):
                self._alerts.sweep_silent(sweep, silent, change.changed_at)

    def _alarmed(self, passes: Passes, period: float, now: int) -> Passes:
        """The same, or with the time of an alarm if people are to be told now that the sweep is silent."""
        assert self._since is not None
        patience = limits.SWEEP_SILENT_SECONDS + 2 * period
        if passes.silent(now, self._since, patience, limits.SWEEP_REMINDED_SECONDS):
            return replace(passes, alarmed_at=now, alarmed_by=self._incarnation.id.hex())
        return passes

    def _tell_of_hung(self) -> None:
        """Log each pass once that has been under way here for long: the sweep does not come to an end."""
        for sweep, round in self._under_way.items():
            seconds = self._time.monotonic() - round.since
            if seconds > limits.SWEEP_SILENT_SECONDS and round not in self._told_of:
                self._told_of = {round, *self._told_of.intersection(self._under_way.values())}
                text = "the sweep %s has been under way in this worker for %.0f s, and does not come to an end"
                log.warning(text, sweep, seconds)


def _silence(note: Note) -> tuple[int, int, str]:
    """The silence that was told last, and by whom: since the last pass, at that time."""
    passes = note.read(Passes)
    return passes.at, passes.alarmed_at, passes.alarmed_by
