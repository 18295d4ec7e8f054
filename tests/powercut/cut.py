"""What may be on the disk after the power was cut: all that was synced, and of the rest whatever the disk pleases.

Writes that were not synced may be lost, kept, kept in another order than they were made, or torn into sectors of which
some are new and some are old; the same holds for the writes whose sync was under way.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from tests.powercut.recorder import Act, Deed

SECTOR_BYTES = 512


class Fate(StrEnum):
    """What becomes of that which was not synced."""

    LOST = "lost"
    KEPT = "kept"
    FIRST = "the first ones kept"
    SOME = "some kept, in any order"
    TORN = "torn into sectors"


def images(base: Mapping[str, bytes], acts: Sequence[Act], fate: Fate, chance: random.Random) -> dict[str, bytes]:
    """The files after a cut right after ``acts``, which began on the files of ``base``."""
    disk = {name: bytearray(content) for name, content in base.items()}
    loose: dict[str, list[Act]] = {}
    for act in acts:
        if act.deed is Deed.SYNC:
            _apply(disk, act.file, loose.pop(act.file, ()))
        elif act.deed is Deed.DELETE:
            # The directory is synced with it: a WAL or journal that is gone does not come back.
            disk.pop(act.file, None)
            loose.pop(act.file, None)
        else:
            loose.setdefault(act.file, []).append(act)
    for name, pending in loose.items():
        _apply(disk, name, _survivors(pending, fate, chance))
    return {name: bytes(content) for name, content in disk.items()}


def _survivors(pending: Sequence[Act], fate: Fate, chance: random.Random) -> Iterable[Act]:
    """The writes of one file that reach the disk."""
    if fate is Fate.LOST:
        return ()
    if fate is Fate.KEPT:
        return pending
    if fate is Fate.FIRST:
        return pending[: chance.randrange(len(pending) + 1)]
    some = [act for act in pending if chance.random() < 0.5]
    if fate is Fate.SOME:
        return some
    return [part for act in pending for part in _torn(act, chance)]


def _torn(act: Act, chance: random.Random) -> Iterable[Act]:
    """The sectors of one write that reach the disk; a truncation happens or does not."""
    if act.deed is Deed.TRUNCATE:
        return [act] if chance.random() < 0.5 else []
    end = act.at + len(act.data)
    parts, at = [], act.at
    while at < end:
        until = min(end, (at // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if chance.random() < 0.5:
            parts.append(Act(Deed.WRITE, act.file, at, act.data[at - act.at : until - act.at]))
        at = until
    return parts


def _apply(disk: dict[str, bytearray], name: str, acts: Iterable[Act]) -> None:
    content = disk.setdefault(name, bytearray())
    for act in acts:
        if act.deed is Deed.TRUNCATE:
            del content[act.at :]
            continue
        if len(content) < act.at:
            content.extend(bytes(act.at - len(content)))
        content[act.at : act.at + len(act.data)] = act.data


def written(folder: Path, files: Mapping[str, bytes]) -> None:
    """Lay the files into a folder."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
