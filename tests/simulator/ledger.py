"""A ledger: what the steps of one history have really done, by idempotency key, in the order in which they did it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from msgspec import Struct


class Effect(Struct, frozen=True):
    """One attempt's deed, ``at`` virtual microseconds.

    ``kind`` is ``began``, ``failed``, ``done``, ``undone``, or ``overslept`` if nobody has stopped it in time.
    """

    kind: str
    process: str
    key: str
    label: str
    attempt: int
    node: str
    at: int


class Ledger:
    """The effects of one history; ``mended`` holds the processes whose cause of failure somebody has mended.

    ``seen`` is told of every effect at once.
    """

    def __init__(self, now: Callable[[], int] = lambda: 0, node: Callable[[], str] = lambda: "") -> None:
        self.now = now
        self.node = node
        self.seen: Callable[[Effect], None] = lambda effect: None
        self.effects: list[Effect] = []
        self.mended: set[str] = set()

    def note(self, kind: str, process: str, key: str, label: str, attempt: int) -> None:
        """Write one effect down."""
        effect = Effect(kind, process, key, label, attempt, self.node(), self.now())
        self.effects.append(effect)
        self.seen(effect)

    def of(self, kind: str, key: str) -> Iterator[Effect]:
        """The effects of a kind under one key."""
        return (effect for effect in self.effects if effect.kind == kind and effect.key == key)


class Desk:
    """Where the ledger of the history that is running lies; steps of any node find it here.

    ``die`` ends the worker in which a step runs; outside of a simulation nobody does.
    """

    ledger = Ledger()
    die: Callable[[], Awaitable[None]] | None = None
