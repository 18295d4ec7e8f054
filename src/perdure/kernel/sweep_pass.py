"""The passes of a sweep, over all workers: when the last one was, what it found, and whether there is one at all.

A worker gathers what its rounds have done and adds that to the sweep's note now and then. So a note tells of every
pass, and a sweep has one row however often it passes.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from perdure import limits
from perdure.clock import microseconds
from perdure.kernel.note import Note

PREFIX = "sweep "
"""A note whose name begins with this tells of the sweep that is named behind it."""
ERROR_CHARACTERS = 300


class Passes(Struct, frozen=True, gc=False):
    """The content of a sweep's note. Times and durations are microseconds, times by the store's clock.

    ``at`` is when the last pass without an error ended, of the worker ``by``; ``took`` is how long it was, ``seen`` how
    many rows it read, ``changed`` how many it freed, ended, removed or reported, and ``left`` how many it left alone,
    since recovery was paused or its budget spent. The ``total_`` fields and ``passes`` count since the first pass.
    ``error`` is the last one, raised at ``failed_at``. ``alarmed_at`` is when people were last told that it is silent,
    ``alarmed_by`` the id of the worker that did.
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

    def passed(self, now: int, by: str, took: int, seen: int, changed: int, left: int) -> Passes:
        """As it is after one more pass."""
        return replace(
            self, at=now, by=by, took=took, seen=seen, changed=changed, left=left, passes=self.passes + 1,
            total_seen=self.total_seen + seen, total_changed=self.total_changed + changed,
        )  # fmt: skip

    def failed(self, now: int, error: str) -> Passes:
        """As it is after a pass that has ended by an error."""
        return replace(self, errors=self.errors + 1, error=error[:ERROR_CHARACTERS], failed_at=now)

    def and_then(self, later: Passes) -> Passes:
        """Both together; the last pass is the one that ended later, and so is the error."""
        last = later if later.at >= self.at else self
        wrong = later if later.failed_at >= self.failed_at else self
        return replace(
            last, passes=self.passes + later.passes, total_seen=self.total_seen + later.total_seen,
            total_changed=self.total_changed + later.total_changed, errors=self.errors + later.errors,
            error=wrong.error, failed_at=wrong.failed_at, alarmed_at=self.alarmed_at, alarmed_by=self.alarmed_by,
        )  # fmt: skip

    def worth_writing(self, known: Passes, written_at: int, now: int) -> bool:
        """Whether what a worker has gathered is to be added now to what is ``known``, of a note ``written_at``.

        Passes that found nothing wait while another worker has written just before.
        """
        if self.total_changed or self.errors or self.left:
            return True
        look = microseconds(limits.SWEEP_LOG_SECONDS)
        return bool(self.passes) and not (0 <= now - written_at < look and self.at - known.at <= look)

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


def sweep_of(note: Note) -> str | None:
    """The sweep of which a note tells; None if it tells of something else."""
    return note.name.removeprefix(PREFIX) if note.name.startswith(PREFIX) else None
