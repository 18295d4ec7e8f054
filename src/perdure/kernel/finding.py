"""A finding as it is kept: what a check has found wrong with a process, since when, and what has become of it.

A row stays for a while after its fault has gone. There are never more than a bounded number of rows: what is mended
makes room for what is new, and what finds no room is counted and logged like everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from perdure import limits
from perdure.clock import microseconds
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.kernel.soundness import Finding


class KeptFinding(Struct, frozen=True, gc=False):
    """One row of the table ``finding``: one check, ``law``, about one ``process``. Times are microseconds.

    The fault was found at ``since``, and was still there at ``seen_at``. ``gone_at`` is when a check found it no more.
    ``mended_by`` says who had it mended, and ``mended`` how; both are empty if it went by itself. A row that is
    written as ``removed`` is deleted.
    """

    name: str
    version: int
    law: str
    process: str
    kind: str
    text: str
    since: int
    seen_at: int
    gone_at: int | None = None
    mended_by: str = ""
    mended: str = ""
    removed: bool = False


class Fixed(Struct, frozen=True, gc=False):
    """That a fault was mended: of which check, about which process, how."""

    law: str
    process: bytes
    text: str


def name_of(law: str, process: bytes) -> str:
    """The name of the row."""
    return f"{law} {id_text(process)}"


def noted(
    kept: Sequence[KeptFinding],
    examined: Mapping[bytes, Process],
    laws: Iterable[str],
    findings: Sequence[Finding],
    now: int,
) -> list[KeptFinding]:
    """What changes in the rows when these processes were examined by these checks, and this was found.

    What was found anew comes last: if there is no room for all of it, the last ones are left out.
    """
    rows = {row.name: row for row in kept}
    by_name = {name_of(one.law, one.subject): one for one in findings}
    seen = [_seen(rows[name], one.text, now) for name, one in by_name.items() if name in rows]
    of = set(laws)
    ids = {id_text(id) for id in examined}
    gone = [
        replace(row, version=row.version + 1, gone_at=now)
        for row in kept
        if row.gone_at is None and row.process in ids and row.law in of and row.name not in by_name
    ]
    fresh = [
        KeptFinding(name, 1, one.law, id_text(one.subject), str(examined[one.subject].kind), one.text, now, now)
        for name, one in by_name.items()
        if name not in rows
    ]
    changes = [row for row in seen if row is not None] + gone
    touched = {row.name for row in changes}
    ended = sorted((row for row in kept if row.gone_at is not None and row.name not in touched), key=_gone_at)
    room = limits.FINDING_RECORDS - len(kept)
    freed = ended[: max(len(fresh) - room, 0)]
    return [*changes, *map(_removed, freed), *fresh[: max(room + len(freed), 0)]]


def mended(kept: Sequence[KeptFinding], fixed: Sequence[Fixed], by: str, now: int) -> list[KeptFinding]:
    """What changes in the rows when these faults were mended, by an order of ``by``."""
    how = {name_of(one.law, one.process): one.text for one in fixed}
    return [
        replace(row, version=row.version + 1, gone_at=now, mended_by=by, mended=how[row.name])
        for row in kept
        if row.name in how
    ]


def outdated(kept: Sequence[KeptFinding], there: Iterable[str], now: int) -> list[KeptFinding]:
    """The removal of rows whose fault has been gone for long, and of those whose process is not ``there`` any more."""
    long_ago = now - microseconds(limits.FINDING_KEPT_SECONDS)
    ids = set(there)
    return [
        _removed(row) for row in kept if row.process not in ids or (row.gone_at is not None and row.gone_at < long_ago)
    ]


def _seen(row: KeptFinding, text: str, now: int) -> KeptFinding | None:
    """The row of a fault that is there; None if that was written not long ago."""
    again = row.gone_at is not None
    if not again and row.text == text and now - row.seen_at < microseconds(limits.FINDING_SEEN_SECONDS):
        return None
    since = now if again else row.since
    return replace(
        row, version=row.version + 1, text=text, since=since, seen_at=now, gone_at=None, mended_by="", mended=""
    )


def _removed(row: KeptFinding) -> KeptFinding:
    return replace(row, version=row.version + 1, removed=True)


_gone_at = attrgetter("gone_at")
