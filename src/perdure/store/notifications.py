"""Notifications: hints at what a transaction has changed, for the other workers and clients. They save polls.

The receiver of a notification reads the rows before it acts. A change without a notification, or whose notification
got lost, is found by the next poll.
"""

from __future__ import annotations

import contextlib
from binascii import Error, a2b_base64
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from msgspec import MsgspecError, Struct, json

from perdure.kernel.process import Process

NAMED = 32
"""The most due processes that one notification names: if there are more, claims look for all of them, in order."""
KINDS = 16
"""The most kinds of due processes that one notification names."""
ID = 16
"""The bytes of an id."""
TAIL = 5
"""How many bytes from the end of an id name a process that has ended: they are random in Perdure's ids."""


class Notification(Struct, frozen=True, omit_defaults=True, gc=False):
    """What has changed: ``due`` processes of ``kinds`` (all due ones of these kinds, if ``due`` is empty), and others.

    ``told`` are processes that a worker holds and that were sent messages, or that were taken from their worker.
    ``ended`` are the tails of the ids of processes that have ended. ``published`` are processes that have published
    values. ``some_due``, ``some_done`` and ``some_published`` say that there are more, which are not named.
    """

    kinds: tuple[str, ...] = ()
    due: tuple[bytes, ...] = ()
    told: tuple[bytes, ...] = ()
    ended: tuple[bytes, ...] = ()
    some_due: bool = False
    some_done: bool = False
    published: tuple[bytes, ...] = ()
    some_published: bool = False

    @property
    def any_due(self) -> bool:
        """Whether a worker has reason to look: for due processes, or for messages to processes that it holds."""
        return self.some_due or bool(self.kinds or self.told)

    @property
    def any_done(self) -> bool:
        """Whether a client that waits for the end of a process has reason to look."""
        return self.some_done or bool(self.ended)


_NOTHING = Notification()

Listener: TypeAlias = Callable[[Notification], None]
"""Called with a notification, which is never empty."""
StopListening: TypeAlias = Callable[[], None]
"""Ends a watch; may be called again."""


class Listeners(list[Listener]):
    """The listeners of one store object."""

    def add(self, listener: Listener) -> StopListening:
        """Notify this listener from now on; the answer stops that."""
        self.append(listener)

        def stop() -> None:
            if listener in self:
                self.remove(listener)

        return stop

    def notify(self, notification: Notification) -> None:
        """Pass on what has changed, if anything has."""
        if notification != _NOTHING:
            for listener in tuple(self):
                listener(notification)


def of_due(rows: Iterable[Process]) -> Notification:
    """The notification that these processes are due now."""
    kinds: dict[str, None] = {}
    due: list[bytes] = []
    for row in rows:
        kinds[row.kind] = None
        if len(due) <= NAMED:
            due.append(row.id)
    if len(kinds) > KINDS:
        return Notification(some_due=True)
    return Notification(tuple(kinds), tuple(due) if len(due) <= NAMED else ())


def tails(ids: Sequence[bytes]) -> tuple[bytes, ...]:
    """What stands for these ids in a notification of ended processes."""
    return tuple(id[-TAIL:] for id in ids)


_due = json.Decoder(Notification).decode


def of_channel(channel: str, payload: str) -> Notification:
    """The notification in a NOTIFY of PostgreSQL: processes that are due (in JSON), ended, told or have published.

    An empty payload says that there are some. So does one that cannot be read: it is from another version.
    """
    with contextlib.suppress(MsgspecError, Error, ValueError, RecursionError):
        if channel == "due" and payload:
            return _due(payload)
        if channel == "done" and payload:
            joined = a2b_base64(payload)
            return Notification(ended=tuple(joined[at : at + TAIL] for at in range(0, len(joined), TAIL)))
        if channel == "told" and payload:
            return Notification(told=_ids(payload))
        if channel == "published" and payload:
            return Notification(published=_ids(payload))
    return Notification(
        some_due=channel in ("due", "told"), some_done=channel == "done", some_published=channel == "published"
    )


def _ids(payload: str) -> tuple[bytes, ...]:
    joined = bytes.fromhex(payload.replace("-", ""))  # it passes over the blanks between them
    if len(joined) % ID:
        raise ValueError("this is not the text of ids")
    return tuple(joined[at : at + ID] for at in range(0, len(joined), ID))
