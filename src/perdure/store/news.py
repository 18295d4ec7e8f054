"""News: what a transaction leaves for others to look at, as far as the store can say it. It only saves looking.

Whatever is told here is looked up before it counts, and what was not told, or got lost, is found by the next poll.
"""

from __future__ import annotations

import contextlib
from binascii import Error, a2b_base64
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from msgspec import MsgspecError, Struct, json

from perdure.kernel.process import Process

if TYPE_CHECKING:
    from perdure.store.base import Hint, Told

NAMED = 32
"""So many due processes are named at most: more are claimed in their order, by looking for all of them."""
KINDS = 16
"""So many kinds of due processes are named at most."""
TAIL = 5
"""Bytes at the end of an id that stand for it where processes that have ended are named: chance, in ids of ours."""


class News(Struct, frozen=True, omit_defaults=True, gc=False):
    """What can be looked at: ``due`` of ``kinds`` (all that are due of them, if none is named), ``told``, ``ended``.

    ``told`` are processes in somebody's hands that messages were sent to, or that were taken from whoever had them.
    ``ended`` are the tails of the ids of processes that have ended. ``published`` are processes that have published
    values. ``some_due``, ``some_done`` and ``some_published`` say that there is more of it, which nobody has named.
    """

    kinds: tuple[str, ...] = ()
    due: tuple[bytes, ...] = ()
    told: tuple[bytes, ...] = ()
    ended: tuple[bytes, ...] = ()
    some_due: bool = False
    some_done: bool = False
    published: tuple[bytes, ...] = ()
    some_published: bool = False


Named: TypeAlias = Callable[[News], None]
"""Called with news that name what is due or has ended."""


class Hearers:
    """Those who watch one store object; true while there is anybody."""

    def __init__(self) -> None:
        self._all: list[tuple[Hint, Hint, Told | None, Named | None]] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, due: Hint, done: Hint, told: Told | None = None, named: Named | None = None) -> Hint:
        """Tell these from now on; the answer stops it."""
        hearer = (due, done, told, named)
        self._all.append(hearer)

        def stop() -> None:
            with contextlib.suppress(ValueError):
                self._all.remove(hearer)

        return stop

    def clear(self) -> None:
        """Tell nobody any more."""
        self._all.clear()

    def tell(self, news: News) -> None:
        """Pass on what has changed, to each in as many words as he understands."""
        for due, done, told, named in tuple(self._all):
            if news.some_due or (news.kinds and named is None) or (news.told and told is None):
                due()
            if told is not None and (news.some_due or news.told):
                told(() if news.some_due else news.told)
            if news.some_done or (news.ended and named is None):
                done()
            if named is not None and (news.kinds or news.ended or news.published or news.some_published):
                named(news)


def of_due(rows: Iterable[Process]) -> News:
    """The news that these processes are due now."""
    kinds: dict[str, None] = {}
    due: list[bytes] = []
    for row in rows:
        kinds[row.kind] = None
        if len(due) <= NAMED:
            due.append(row.id)
    if len(kinds) > KINDS:
        return News(some_due=True)
    return News(tuple(kinds), tuple(due) if len(due) <= NAMED else ())


def tails(ids: Sequence[bytes]) -> tuple[bytes, ...]:
    """What stands for these ids where processes that have ended are named."""
    return tuple(id[-TAIL:] for id in ids)


_due = json.Decoder(News).decode


def of_channel(channel: str, payload: str) -> News:
    """The news of a notification: of processes that are due, in JSON, or have ended, or were told or have published.

    An empty payload says that there are some, and so does one that cannot be read: it is from another version.
    """
    with contextlib.suppress(MsgspecError, Error, ValueError):
        if channel == "due" and payload:
            return _due(payload)
        if channel == "done" and payload:
            joined = a2b_base64(payload)
            return News(ended=tuple(joined[at : at + TAIL] for at in range(0, len(joined), TAIL)))
        if channel == "told" and payload:
            return News(told=_ids(payload))
        if channel == "published" and payload:
            return News(published=_ids(payload))
    return News(some_due=channel in ("due", "told"), some_done=channel == "done", some_published=channel == "published")


def _ids(payload: str) -> tuple[bytes, ...]:
    return tuple(UUID(text).bytes for text in payload.split())
