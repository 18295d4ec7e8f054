"""Saved searches: queries that have names, which every query may use: ``engine.list(where="@unpaid and age > 2d")``.

They stand in one note of the database, so that all programs and people know them. A query that is kept for longer, as
an operation's, keeps what the name meant when it was given.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from msgspec import Struct

from perdure import limits
from perdure.client import validation
from perdure.client.finding.grammar import parsed, references
from perdure.client.view import instant
from perdure.errors import IllegalMove, InvalidInput
from perdure.kernel.names import near
from perdure.kernel.note import Note
from perdure.kernel.plain import shown
from perdure.store.base import Store

NOTE = "saved searches"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class SavedSearch:
    """A query under a name: who saved it, and when (in UTC)."""

    name: str
    where: str
    who: str
    at: datetime | None


class _Kept(Struct, frozen=True):
    where: str
    who: str
    at: int


class _Searches(Struct, frozen=True):
    searches: dict[str, _Kept] = {}


class SavedSearches:
    """The verbs on saved searches: ``engine.searches``."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def list(self) -> builtins.list[SavedSearch]:
        """All saved searches, by name. Raises PayloadError if they cannot be read."""
        kept = await _kept(self.store)
        return [_view(name, one) for name, one in sorted(kept.items())]

    async def save(self, name: str, where: str, *, who: str = "") -> SavedSearch:
        """Save a query under a name, in place of one that had it. It may use others, and keeps what these mean now.

        Raises InvalidInput for a query that cannot be read, and for a name with other letters than ``a-z 0-9 _ . -``.
        """
        sender = validation.sender(who, "", "")
        if not (isinstance(name, str) and NAME.fullmatch(name)):
            raise InvalidInput(
                f"a saved search is named by up to 100 of the letters a-z 0-9 _ . -, not by {shown(name)}."
            )
        whole = await expanded(self.store, where)
        parsed(whole)
        if not whole.strip():
            raise InvalidInput('a saved search needs a query: "status = failed and age > 2d".')
        now = await self.store.now()
        one = _Kept(whole.strip(), sender.who, now)
        kept = await self._change(lambda kept: {**kept, name: one})
        return _view(name, kept[name])

    async def remove(self, name: str) -> None:
        """Forget a saved search. Raises InvalidInput if there is none of that name."""

        def without(kept: Mapping[str, _Kept]) -> dict[str, _Kept]:
            _known(name, kept)
            return {other: one for other, one in kept.items() if other != name}

        await self._change(without)

    async def _change(self, change: Callable[[Mapping[str, _Kept]], dict[str, _Kept]]) -> dict[str, _Kept]:
        """Read them, change them and write them; if they have changed meanwhile, try again.

        Raises IllegalMove, and PayloadError if they cannot be read.
        """
        for _ in range(limits.COMMAND_TRIES):
            note = await _note(self.store)
            kept = change(note.read_strictly(_Searches).searches)
            if len(kept) > limits.SAVED_SEARCH_RECORDS:
                raise InvalidInput(
                    f"there are {limits.SAVED_SEARCH_RECORDS:,} saved searches, which is the limit: remove one first."
                )
            new = note.next(_Searches(kept), await self.store.now())
            if new in await self.store.records(Note, [new]):
                return kept
        raise IllegalMove("the saved searches kept changing meanwhile; nothing was done, try again")


async def expanded(store: Store, where: str) -> str:
    """The query with each saved search that it names in its place; raises InvalidInput for a name that there is not."""
    named = references(where)
    if not named:
        return where
    kept = await _kept(store)
    for start, end, name in reversed(named):
        where = f"{where[:start]}({_known(name, kept).where}){where[end:]}"
    return where


def _known(name: str, kept: Mapping[str, _Kept]) -> _Kept:
    if name not in kept:
        others = (
            f" There are {', '.join(sorted(kept))}." if kept else " There are none; `perdure search save` saves one."
        )
        raise InvalidInput(f"there is no saved search {shown(name)}.{near(name, kept)}{others}")
    return kept[name]


async def _kept(store: Store) -> dict[str, _Kept]:
    return (await _note(store)).read_strictly(_Searches).searches


async def _note(store: Store) -> Note:
    return next((one for one in await store.records(Note) if one.name == NOTE), Note(NOTE))


def _view(name: str, one: _Kept) -> SavedSearch:
    return SavedSearch(name, one.where, one.who, instant(one.at))
