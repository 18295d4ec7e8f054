"""The passes of a sweep, over all workers: when the last one was, what it found, and whether there is one at all.

A worker gathers what its rounds have done and adds that to the sweep's note now and then. So a note tells of every
pass, and a sweep has one row however often it passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure import limits
from perdure.clock import SECOND, microseconds
from perdure.errors import DefinitionError
from perdure.kernel.note import Note

PREFIX = "sweep "
"""A note whose name begins with this tells of the sweep that is named behind it."""
ERROR_CHARACTERS = 300
WAVE_SECONDS = 60.0
"""Recoveries that lie further apart are of two waves."""
QUICKEST_SECONDS, SLOWEST_SECONDS = 0.05, 3600.0
"""How often a sweep may be told to pass."""
SETTABLE = (
    "finished long ago", "lease lapsed", "owner gone", "process idle", "process overdue", "process set back",
    "signal overlooked", "unhosted", "worker dead", "worker silent",
)  # fmt: skip
"""The sweeps whose pace may be set."""
SWEEPS = (*SETTABLE, "record unsound")
"""All sweeps; how fast the last one goes is set by the rate of checks."""


class Passes(Struct, frozen=True, gc=False):
    """The content of a sweep's note. Times and durations are microseconds, times by the store's clock.

    ``at`` is when the last pass without an error ended, of the worker ``by``; ``took`` is how long it was, ``seen`` how
    many rows it read, ``changed`` how many it freed, ended, removed or reported, and ``left`` how many it left alone,
    since recovery was paused or its budget spent. The ``total_`` fields and ``passes`` count since the first pass.
    ``error`` is the last one, raised at ``failed_at``. ``alarmed_at`` is when people were last told that it is silent,
    ``alarmed_by`` the id of the worker that did. ``every`` is how long after a pass the next one follows if there is
    nothing to do. A wave is the passes since ``wave_since`` that changed or left something, the last one at
    ``wave_at``: they have ``examined`` so many rows, and ``recovered`` so many of them.
    """

    at: int = 0
    by: str = ""
    took: int = 0
    seen: int = 0
    changed: int = 0
    left: int = 0
    passes: int = 0
    total_seen: int = 0
    total_changed: int = 0
    errors: int = 0
    error: str = ""
    failed_at: int = 0
    alarmed_at: int = 0
    alarmed_by: str = ""
    every: int = 0
    wave_since: int = 0
    wave_at: int = 0
    examined: int = 0
    recovered: int = 0

    def passed(self, now: int, by: str, took: int, seen: int, changed: int, left: int, every: int = 0) -> Passes:
        """As it is after one more pass."""
        after = replace(
            self, at=now, by=by, took=took, seen=seen, changed=changed, left=left, passes=self.passes + 1,
            total_seen=self.total_seen + seen, total_changed=self.total_changed + changed, every=every,
        )  # fmt: skip
        if not changed and not left:
            return after
        return after.in_wave_with(Passes(wave_since=now, wave_at=now, examined=seen, recovered=changed))

    def in_wave_with(self, later: Passes) -> Passes:
        """The same, with the wave of both; with the later one alone if it has begun long after the earlier's end."""
        first, last = sorted((self, later), key=lambda one: one.wave_at)
        if not last.wave_at:
            return self
        examined, recovered, since = last.examined, last.recovered, last.wave_since
        if first.wave_at and last.wave_since - first.wave_at <= microseconds(WAVE_SECONDS):
            since = min(since, first.wave_since)
            examined, recovered = examined + first.examined, recovered + first.recovered
        return replace(self, wave_since=since, wave_at=last.wave_at, examined=examined, recovered=recovered)

    def failed(self, now: int, error: str) -> Passes:
        """As it is after a pass that has ended by an error."""
        return replace(self, errors=self.errors + 1, error=error[:ERROR_CHARACTERS], failed_at=now)

    def and_then(self, later: Passes) -> Passes:
        """Both together; the last pass is the one that ended later, and so is the error."""
        last = later if later.at >= self.at else self
        wrong = later if later.failed_at >= self.failed_at else self
        both = replace(
            last, passes=self.passes + later.passes, total_seen=self.total_seen + later.total_seen,
            total_changed=self.total_changed + later.total_changed, errors=self.errors + later.errors,
            error=wrong.error, failed_at=wrong.failed_at, alarmed_at=self.alarmed_at, alarmed_by=self.alarmed_by,
        )  # fmt: skip
        return both.in_wave_with(self if last is later else later)

    def worth_writing(self, known: Passes, written_at: int, now: int) -> bool:
        """Whether what a worker has gathered is to be added now to what is ``known``, of a note ``written_at``.

        Passes that found nothing wait while another worker has written just before.
        """
        if self.total_changed or self.errors or self.left:
            return True
        look = microseconds(limits.SWEEP_LOG_SECONDS)
        return bool(self.passes) and not (0 <= now - written_at < look and self.at - known.at <= look)

    @property
    def patience(self) -> float:
        """Seconds without a pass after which the sweep is silent."""
        return limits.SWEEP_SILENT_SECONDS + 2 * self.every / SECOND

    def silent(self, now: int, since: int, patience: float, again: float) -> bool:
        """Whether people are to be told that no pass has ended for ``patience`` seconds, though workers live.

        ``since`` is when the worker that asks has begun to sweep: before that, perhaps none lived. They are told again
        after ``again`` seconds, as the worker that told may have died meanwhile. A time far ahead of the clock is not
        believed: the clock was set back.
        """
        at = min(self.at, now) if self.at - now <= microseconds(patience) else 0
        quiet = now - max(at, since) > microseconds(patience)
        told = at <= self.alarmed_at <= now < self.alarmed_at + microseconds(again)
        return quiet and not told


def paces(source: str, given: Any) -> dict[str, float]:
    """Seconds between two passes, by sweep, of what was ``given``; raises DefinitionError."""
    if not isinstance(given, Mapping):
        raise DefinitionError(f"the sweeps of {source} have no names. Write, for one of them, owner_gone = 2.0.")
    found = {}
    for name, seconds in given.items():
        sweep = str(name).replace("_", " ")
        if sweep not in SETTABLE:
            known = ", ".join(one.replace(" ", "_") for one in SETTABLE)
            raise DefinitionError(f"{source} sets a pace of the sweep {name!r:.100}. There are {known}.")
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not number or not QUICKEST_SECONDS <= seconds <= SLOWEST_SECONDS:
            raise DefinitionError(
                f"{source} has {seconds!r:.100} as pace of the sweep {name}. "
                f"Give seconds, from {QUICKEST_SECONDS:g} to {SLOWEST_SECONDS:g}."
            )
        found[sweep] = float(seconds)
    return found


def sweep_of(note: Note) -> str | None:
    """The sweep of which a note tells; None if it tells of something else."""
    return note.name.removeprefix(PREFIX) if note.name.startswith(PREFIX) else None
